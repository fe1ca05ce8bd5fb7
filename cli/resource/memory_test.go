package resource_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/cli/resource"
)

// A flood is an input of a given size: head, then one block after the other.
type flood struct {
	rest, block []byte
	left        int
}

func newFlood(size int, head, block string) *flood {
	return &flood{rest: []byte(head), block: []byte(block), left: size}
}

func (f *flood) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		if f.left <= 0 {
			return 0, io.EOF
		}
		f.rest = f.block
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	f.left -= n
	return n, nil
}

// TestAFloodTakesConstantMemory reads 32 MB of documents, and of items of one List,
// and looks at the live heap on the way: it must not grow with what was read.
func TestAFloodTakesConstantMemory(t *testing.T) {
	const bound = 8 << 20 // a few documents, decoded and not
	for _, f := range floods() {
		t.Run(f.name, func(t *testing.T) {
			if grown := f.read(t, 32<<20); grown > bound {
				t.Errorf("the live heap grew by %d KB, want at most %d", grown>>10, bound>>10)
			}
		})
	}
}

// BenchmarkFlood reads 200 MB and reports by how much the live heap grew.
func BenchmarkFlood(b *testing.B) {
	const size = 200 << 20
	for _, f := range floods() {
		b.Run(f.name, func(b *testing.B) {
			b.SetBytes(size)
			var grown int64
			for b.Loop() {
				grown = max(grown, f.read(b, size))
			}
			b.ReportMetric(float64(grown)/(1<<20), "MB-live-heap")
		})
	}
}

// A deluge is a kind of input: a block repeated between a head and a tail.
type deluge struct{ name, head, block, tail string }

func floods() []deluge {
	text := strings.Repeat("x", 500<<10) // large documents are read quickest
	item := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","annotations":{"a":%q}}}`, text)
	return []deluge{
		{name: "YAML", block: "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {a: " + text + "}}\n"},
		{name: "JSON", block: item + "\n"},
		{name: "a List in JSON", head: `{"apiVersion":"v1","items":[` + item, block: ",\n" + item, tail: `],"kind":"List"}`},
	}
}

// read reads size bytes of d and returns by how much the live heap grew at most.
func (d deluge) read(t testing.TB, size int) int64 {
	in := io.MultiReader(newFlood(size, d.head, d.block), bytes.NewReader([]byte(d.tail)))
	n, most := 0, uint64(0)
	var first, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&first)
	for info, err := range resource.Stream(t.Context(), resource.NewMapper(cluster()), resource.Request{Files: []string{"-"}, In: in, Namespace: "default"}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n%20 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
		}
		if info.Name != "a" {
			t.Fatalf("object %d is %s", n, info)
		}
	}
	if n*len(d.block) < size {
		t.Errorf("only %d objects came out", n)
	}
	return int64(most) - int64(first.HeapAlloc)
}
