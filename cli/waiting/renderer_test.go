package waiting

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/progress"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
)

func aPod(name, cause string) await.Status {
	return await.Status{
		Object:  await.Ref{Resource: client.Pods.GroupVersionResource, Kind: "Pod", Namespace: "default", Name: name},
		Verdict: await.Verdict{Cause: cause},
	}
}

// TestManyLinesAreGathered passes thousands of changes of one Deployment to the renderer, and then hundreds of pods at
// once.
func TestManyLinesAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, errs bytes.Buffer
		words := progress.WordsOf(await.Ready)
		r := newLineRenderer(t.Context(), session.Streams{Out: &out, Err: &errs}, Talk{})
		hear := func(p await.Progress) { r.update(p, words, await.Request{}) }
		lines := func() []string {
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			got := strings.Split(strings.TrimSpace(errs.String()), "\n")
			errs.Reset()
			return got
		}
		for i := range 5000 {
			hear(aPod("web", fmt.Sprintf("%d/5000 pods ready", i)))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(longLull)
		got := lines()
		if len(got) > lineRoom+12 || got[0] != "waiting for pod/web to be ready: 0/5000 pods ready" || !strings.HasSuffix(got[len(got)-1], " 4999/5000 pods ready") {
			t.Errorf("%d lines of 5000 changes in 50 s, the last %q", len(got), got[len(got)-1])
		}

		time.Sleep(2 * longLull) // it is quiet
		for i := range 500 {
			hear(aPod(fmt.Sprintf("p%03d", i), "no node has room"))
		}
		if got := lines(); len(got) != lineRoom {
			t.Errorf("%d lines at once, want %d", len(got), lineRoom)
		}
		hear(await.Status{Object: aPod("p499", "").Object, Verdict: await.Verdict{State: await.Done}})
		time.Sleep(firstLull)
		want := "waiting for 489 objects to be ready: pod/p010, pod/p011, pod/p012 and 486 more: no node has room"
		if got := lines(); len(got) != 1 || got[0] != want {
			t.Errorf("after a pause %q, want %q", got, want)
		}
		if out.String() != "pod/p499 is ready\n" {
			t.Errorf("done: %q", out.String())
		}
		r.close(nil)
	})
}

// TestReportsGroupEqualCauses checks what is said when many objects failed.
func TestReportsGroupEqualCauses(t *testing.T) {
	ending := func(objects ...await.Status) Ending {
		return Ending{words: progress.WordsOf(await.Ready), Outcome: await.Outcome{Result: await.TimedOut, Objects: objects}}
	}
	var many, different []await.Status
	for i := range 500 {
		name := fmt.Sprintf("p%03d", i)
		many = append(many, aPod(name, "back-off restarting container c of "+name))
		different = append(different, aPod(name, fmt.Sprintf("cause %d", i)))
	}
	for _, tt := range []struct {
		name    string
		objects []await.Status
		most    int // lines
		last    string
	}{
		{"few", many[:3], 3 * 2, "  see: "},
		{"equal", many, 3, "  see: "},
		{"different", different, fullReports*2 + allReports, "error: and 480 more, for other causes; -o json lists them all"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := ending(tt.objects...).Failure(Talk{})
			if exit.Code(err) != exit.TimedOut {
				t.Fatalf("exit code %d", exit.Code(err))
			}
			lines := strings.Split(strings.Join(exit.Explain(err, nil), "\n"), "\n")
			if len(lines) > tt.most || !strings.HasPrefix(lines[len(lines)-1], tt.last) {
				t.Errorf("%d lines, want at most %d and the last %q:\n%s", len(lines), tt.most, tt.last, strings.Join(lines, "\n"))
			}
			if tt.name == "equal" && lines[1] != "  and the same of pod/p001, pod/p002, pod/p003 and 496 more" {
				t.Errorf("second line %q", lines[1])
			}
			if tt.name == "few" && strings.Count(strings.Join(lines, "\n"), "timed out waiting for") != 3 {
				t.Errorf("a few are not told one by one:\n%s", strings.Join(lines, "\n"))
			}
		})
	}
}
