package progress_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/progress"
	"github.com/sampan-io/sampan/internal/storytest"
)

var began = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// TestStories plays the stories in testdata/*.txt. A story has the changes of a wait
// and commands that print them. Run with -update after a change, then read the diff.
//
//	wait [TIMEOUT] [ascii|unicode|color]     a new wait, to be ready
//	at TIME KIND/NAME[@NAMESPACE] waiting|likely|certain|done|absent [CAUSE]
//	part KIND/NAME waiting|likely|certain [CAUSE]     of the object in the line before; "part - …" of that part
//	                                                  a state with "+log" is that of a pod that has a log
//	event TIME REASON KIND/NAME [xN] MESSAGE
//	gone KIND/NAME · lost TIME CAUSE · back
//	show TIME [WIDTHxHEIGHT]                 the picture
//	line · json · more                       the last news in these forms
//	report timed-out|failed TIME
func TestStories(t *testing.T) {
	storytest.Play(t, "testdata", func(t *testing.T) func(string) []string {
		s := &story{t: t}
		s.begin(nil)
		return s.do
	})
}

type story struct {
	t     *testing.T
	tree  *progress.Tree
	lines progress.Lines
	news  await.Progress // the last change
	now   await.Status   // the last status; parts and events are added to it
	at    time.Time
	fresh bool // the tree has not been updated yet
}

var words = progress.WordsOf(await.Ready)

func (s *story) begin(args []string) {
	var timeout time.Duration
	var style progress.Style
	for _, a := range args {
		switch a {
		case "ascii":
		case "unicode":
			style.Unicode = true
		case "color":
			style.Color = true
		default:
			timeout = s.duration(a)
		}
	}
	s.tree = progress.NewTree(words, style, began, timeout)
	s.lines = progress.Lines{}
	s.news, s.now, s.fresh = nil, await.Status{}, false
}

func (s *story) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *story) flush() {
	if s.fresh {
		s.news = s.now
		s.tree.Update(s.news, words, s.at)
		s.fresh = false
	}
}

func ref(text string) await.Ref {
	name, namespace, found := strings.Cut(text, "@")
	if !found {
		namespace = "default"
	}
	kind, name, _ := strings.Cut(name, "/")
	r := await.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: kind + "s"}, Namespace: namespace, Name: name, UID: types.UID("uid-" + name)}
	r.Kind = map[string]string{"pod": "Pod", "rc": "ReplicationController", "service": "Service", "deployment": "Deployment", "replicaset": "ReplicaSet"}[kind]
	if strings.HasPrefix(r.Kind, "D") || r.Kind == "ReplicaSet" {
		r.Resource.Group = "apps"
	}
	return r
}

func verdict(state string, cause []string) await.Verdict {
	state, logged := strings.CutSuffix(state, "+log")
	v := await.Verdict{Cause: unescape(strings.Join(cause, " ")), Logged: logged}
	switch state {
	case "done":
		v.State = await.Done
	case "likely":
		v.State = await.Failed
	case "certain":
		v.State, v.Certainty = await.Failed, await.Certain
	}
	return v
}

func unescape(s string) string {
	return strings.NewReplacer(`\n`, "\n", `\e`, "\x1b", `\t`, "\t", `\u202e`, "\u202e").Replace(s)
}

func (s *story) do(text string) []string {
	w := strings.Fields(text)
	if len(w) == 0 {
		return nil
	}
	switch w[0] {
	case "part":
		p := await.Part{}
		parts := &s.now.Parts
		if w[1] == "-" {
			parts = &(*parts)[len(*parts)-1].Parts
			w = w[1:]
		}
		p.Object, p.Verdict = ref(w[1]), verdict(w[2], w[3:])
		*parts = append(*parts, p)
		return nil
	case "event":
		about := ref(w[3])
		e := &corev1.Event{
			Reason: w[2], Type: "Warning", LastTimestamp: metav1.NewTime(began.Add(s.duration(w[1]))),
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: about.Kind, Namespace: about.Namespace, Name: about.Name, UID: about.UID},
		}
		rest := w[4:]
		if _, err := fmt.Sscanf(rest[0], "x%d", &e.Count); err == nil {
			rest = rest[1:]
		}
		e.Message = unescape(strings.Join(rest, " "))
		s.now.Events = append(s.now.Events, e)
		return nil
	}
	s.flush()
	switch w[0] {
	case "wait":
		s.begin(w[1:])
	case "at":
		s.at, s.fresh = began.Add(s.duration(w[1])), true
		s.now = await.Status{Object: ref(w[2]), Verdict: verdict(w[3], w[4:]), Absent: w[3] == "absent"}
	case "gone":
		s.news = await.Dropped{Object: ref(w[1]), Absent: true}
		s.tree.Update(s.news, words, s.at)
	case "back":
		s.news = await.ConnectionRestored{}
		s.tree.Update(s.news, words, s.at)
	case "lost":
		s.news = await.ConnectionLost{Err: errors.New(unescape(strings.Join(w[2:], " ")))}
		s.tree.Update(s.news, words, began.Add(s.duration(w[1])))
	case "show":
		width, height := 0, 0
		if len(w) > 2 {
			if _, err := fmt.Sscanf(w[2], "%dx%d", &width, &height); err != nil {
				s.t.Fatal(err)
			}
		}
		lines := s.tree.Lines(began.Add(s.duration(w[1])), width, height)
		if height > 0 && len(lines) > height {
			s.t.Errorf("%q has %d lines", text, len(lines))
		}
		for i, l := range lines {
			lines[i] = strings.ReplaceAll(l, "\x1b", `\e`)
		}
		return lines
	case "line":
		l, done := s.lines.Line(s.news, words)
		if done {
			l += " (done)"
		}
		return []string{l}
	case "json":
		data, err := json.Marshal(progress.EventOf(s.news))
		if err != nil {
			s.t.Fatal(err)
		}
		return []string{string(data)}
	case "status":
		data, err := json.Marshal(progress.StatusOf(s.now, nil))
		if err != nil {
			s.t.Fatal(err)
		}
		return []string{string(data)}
	case "report":
		result := await.TimedOut
		if w[1] == "failed" {
			result = await.SomeFailed
		}
		return progress.Report(s.now, result, words, nil, began.Add(s.duration(w[2])))
	default:
		s.t.Fatalf("unknown command %q", text)
	}
	return nil
}
