package channels

import (
	"strings"
	"testing"
)

// TestSizesAreBounded has clients that send sizes without end.
func TestSizesAreBounded(t *testing.T) {
	for name, endless := range map[string]string{"text": `{"Width":80,"a":"` + strings.Repeat("a", 10*mostSize), "blanks": strings.Repeat(" ", 10*mostSize)} {
		from := strings.NewReader(`{"Width":1,"Height":2}` + endless + `{"Width":3,"Height":4}`)
		sizes := make(chan Size, 1)
		ReadSizes(from, sizes)
		if got := <-sizes; got != (Size{Width: 1, Height: 2}) || from.Len() > 0 {
			t.Errorf("%s: the last size is %v, %d bytes were not read", name, got, from.Len())
		}
	}
	sizes := make(chan Size, 1)
	ReadSizes(strings.NewReader(strings.Repeat(`{"Width":5,"Height":6}`, mostSize)), sizes)
	if got := <-sizes; got != (Size{Width: 5, Height: 6}) {
		t.Errorf("many sizes: %v", got)
	}
}
