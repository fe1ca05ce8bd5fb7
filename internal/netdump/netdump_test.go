package netdump_test

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sampan-io/sampan/internal/netdump"
)

func TestWhole(t *testing.T) {
	broken := errors.New("broken")
	always := make([]error, 1000)
	for i := range always {
		always[i] = netlink.ErrDumpInterrupted
	}
	for name, tt := range map[string]struct {
		errs  []error // of the reads; later ones succeed
		reads int
		want  error
	}{
		"at once":           {nil, 1, nil},
		"interrupted twice": {always[:2], 3, nil},
		"another error":     {[]error{broken}, 1, broken},
		"a later error":     {[]error{netlink.ErrDumpInterrupted, broken}, 2, broken},
		"never whole":       {always, 20, netlink.ErrDumpInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			got, err := netdump.Whole(func() (int, error) {
				reads++
				if reads <= len(tt.errs) {
					return -reads, tt.errs[reads-1]
				}
				return reads, nil
			})
			if reads != tt.reads || !errors.Is(err, tt.want) || tt.want == nil && got != reads {
				t.Errorf("%d after %d reads, %v; want %d reads, %v", got, reads, err, tt.reads, tt.want)
			}
		})
	}
}
