package progress_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sampan-io/sampan/cli/progress"
)

// held reads lines of "KIND/NAME[*COUNT] CAUSE"; of several objects each has its number
// behind its name. "gone" is an object that no longer counts.
func held(text string) []progress.Held {
	var all []progress.Held
	for line := range strings.Lines(text) {
		name, cause, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, times, many := strings.Cut(name, "*")
		count := 1
		if many {
			fmt.Sscan(times, &count)
		}
		for i := range count {
			one := name
			if many {
				one += fmt.Sprint(i)
			}
			r := ref(one)
			c := strings.ReplaceAll(cause, "NAME", r.Name)
			all = append(all, progress.Held{Object: r, Words: words, Cause: c, Gone: cause == "gone", Text: r.String() + ": " + c})
		}
	}
	return all
}

func TestGather(t *testing.T) {
	for _, tt := range []struct {
		name string
		held string
		most int
		want string
	}{
		{"nothing", "", 5, ""},
		{"one", "pod/a starts", 5, "pod/a: starts"},
		{"few of a cause are told by themselves", "pod/a starts\npod/b starts", 5, "pod/a: starts\npod/b: starts"},
		{"many share a line", "pod/a*500 no node\npod/b starts", 5, "waiting for 500 objects to be ready: pod/a0, pod/a1, pod/a2 and 497 more: no node\npod/b: starts"},
		{"their own names make no difference", "pod/a*4 back-off restarting c in pod NAME_ns(x)", 5, "waiting for 4 objects to be ready: pod/a0, pod/a1, pod/a2 and 1 more: back-off restarting c in pod a0_ns(x)"},
		{"parts of words do", "pod/a*2 x a0-b a1-b\npod/b*2 x a0-b a1-b", 5, "waiting for 4 objects to be ready: pod/a0, pod/a1, pod/b0 and 1 more: x a0-b a1-b"},
		{"no word yet", "pod/a*4", 5, "waiting for 4 objects to be ready: pod/a0, pod/a1, pod/a2 and 1 more: no status yet"},
		{"kinds stay apart", "pod/a*4 x\nservice/a*4 x", 5, "waiting for 4 objects to be ready: pod/a0, pod/a1, pod/a2 and 1 more: x\nwaiting for 4 objects to be ready: service/a0, service/a1, service/a2 and 1 more: x"},
		{"gone", "pod/a*5 gone", 5, "5 objects no longer count: pod/a0, pod/a1, pod/a2 and 2 more"},
		{"more causes than lines", "pod/a x1\npod/b x2\npod/c x3\npod/d*7 x4", 3, "pod/a: x1\npod/b: x2\nwaiting for 8 more objects, for other causes"},
		{"as many as lines", "pod/a x1\npod/b x2\npod/c x3", 3, "pod/a: x1\npod/b: x2\npod/c: x3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, strings.Join(progress.Gather(held(tt.held), tt.most), "\n")); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGatherIsShort checks the bound on lines, that each object is counted once, and that
// nothing depends on how many objects there are.
func TestGatherIsShort(t *testing.T) {
	for _, n := range []int{1, 10, 1000} {
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, "pod/p%d cause %d\n", i, i%25)
		}
		if lines := progress.Gather(held(all.String()), 10); len(lines) > 10*3 { // up to three objects have a line each
			t.Errorf("%d lines for %d objects", len(lines), n)
		}
	}
}
