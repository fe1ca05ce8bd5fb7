package nft

import (
	"testing"
	"time"

	"github.com/sampan-io/sampan/internal/nstest"
)

func TestArrX(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		var a arrivals
		if err := a.listen(); err != nil {
			t.Fatal(err)
		}
		t0 := time.Now()
		a.hear(time.Now())
		t.Log(time.Since(t0), len(a.all), a.listening())
	})
}
