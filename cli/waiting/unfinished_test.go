package waiting

import (
	"errors"
	"testing"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/progress"
)

// TestUnfinishedObjectsAreNamed ends a wait by the failure of one object: the unfinished objects are in the last line.
func TestUnfinishedObjectsAreNamed(t *testing.T) {
	status := func(kind, name string, v await.Verdict) await.Status {
		return await.Status{Object: await.Ref{Kind: kind, Name: name}, Verdict: v}
	}
	bad := status("Pod", "bad", await.Verdict{State: await.Failed, Certainty: await.Certain, Cause: "InvalidImageName"})
	held := status("Pod", "held", await.Verdict{State: await.Failed, Cause: `secret "nosec" not found`})
	slow := status("Pod", "slow", await.Verdict{Cause: "starting"})
	ready := status("Pod", "ready", await.Verdict{State: await.Done})
	job := status("Job", "j", await.Verdict{})
	end := func(d await.Degree, r await.Result, objects ...await.Status) Ending {
		return Ending{request: await.Request{For: d}, words: progress.WordsOf(d), Outcome: await.Outcome{Result: r, Objects: objects}}
	}
	aborted := end(await.Complete, await.TimedOut, job)
	aborted.aborted, aborted.Err = true, errors.New("cancelled")
	for _, tt := range []struct {
		name string
		ends []Ending
		want string
	}{
		{"one failure", []Ending{end(await.Ready, await.SomeFailed, bad, held, ready, slow)}, `not ready yet: pod/held: secret "nosec" not found; pod/slow: starting`},
		{"nothing else", []Ending{end(await.Ready, await.SomeFailed, bad, ready)}, ""},
		{"timeout", []Ending{end(await.Ready, await.TimedOut, slow)}, ""},
		{"two degrees", []Ending{end(await.Ready, await.SomeFailed, bad, slow), aborted}, "not done yet: pod/slow: starting; job/j"},
		{"ended by a request that is done", []Ending{aborted}, ""},
		{"a degree of several words", []Ending{end(await.OldGone, await.SomeFailed, bad, slow)}, "not done yet: pod/slow: starting"},
		{"many", []Ending{end(await.Ready, await.SomeFailed, bad, slow, slow, slow, slow, slow, slow, slow)}, "not ready yet: pod/slow: starting; pod/slow: starting; pod/slow: starting; pod/slow: starting; pod/slow: starting; and 2 more"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := unfinished(tt.ends); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
