package nodes_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
)

var update = flag.Bool("update", false, "write what happens into the stories")

// TestStories plays the stories in testdata/*.txt. A story begins with what its plan says
// of pods, up to a line "---"; then come commands, and under each "wait" lines that
// begin with ">" and say what a watcher of pods has seen since. Run with -update
// after a change, then read the diff: it is the review.
func TestStories(t *testing.T) {
	stories, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(stories) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range stories {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			old, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			played := play(t, string(old))
			if *update {
				if err := os.WriteFile(file, []byte(played), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if played != string(old) {
				t.Errorf("%s went differently; now:\n%s", file, played)
			}
		})
	}
}

func play(t *testing.T, story string) string {
	plan, commands, ok := strings.Cut(story, "---\n")
	if !ok {
		t.Fatal("a story has a line ---")
	}
	var out strings.Builder
	out.WriteString(plan + "---\n")
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan)
		stop := r.start()
		d := watchPods(r)
		for line := range strings.Lines(commands) {
			if strings.HasPrefix(line, ">") {
				continue
			}
			out.WriteString(line)
			if f := strings.Fields(line); len(f) > 0 && f[0] != "#" {
				if err := r.command(f, &stop); err != nil {
					t.Fatalf("%s: %v", strings.TrimSpace(line), err)
				}
				synctest.Wait()
				if f[0] == "wait" {
					for _, seen := range d.read() {
						out.WriteString("> " + seen + "\n")
					}
				}
			}
		}
		d.stop()
		stop()
	})
	return out.String()
}

func (r *rig) command(f []string, stop *func()) error {
	switch f[0] {
	case "wait":
		d, err := time.ParseDuration(f[1])
		time.Sleep(d)
		return err
	case "pod":
		return r.podCommand(f[1:])
	case "delete":
		grace := int64(30)
		if len(f) > 2 {
			grace, _ = strconv.ParseInt(f[2], 10, 64)
		}
		r.delete(f[1], grace)
	case "cut", "restore":
		r.fail(f[1], f[0] == "cut")
	case "stop":
		(*stop)()
		*stop = func() {}
	case "start":
		*stop = r.start()
	default:
		return errors.New("what?")
	}
	return nil
}

func (r *rig) podCommand(args []string) error {
	p := newPod(args[0], "n-0")
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "restart":
			p.Spec.RestartPolicy = corev1.RestartPolicy(value)
		case "node":
			p.Spec.NodeName = value
		case "app":
			p.Labels["app"] = value
		case "run", "exit", "pull-error", "unready":
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
			switch key {
			case "run":
				key = "run-seconds"
			case "exit":
				key = "exit-code"
			}
			p.Annotations["sampan.dev/simulated-"+key] = value
		case "init":
			p.Spec.InitContainers = []corev1.Container{{Name: value, Image: "demo:v1"}}
		case "containers":
			p.Spec.Containers = nil
			for name := range strings.SplitSeq(value, ",") {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: "demo:v1"})
			}
		case "probe":
			n, _ := strconv.Atoi(value)
			p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{InitialDelaySeconds: int32(n)}
		case "deadline":
			n, _ := strconv.ParseInt(value, 10, 64)
			p.Spec.ActiveDeadlineSeconds = &n
		case "pull":
			p.Spec.Containers[0].ImagePullPolicy = corev1.PullPolicy(value)
		default:
			return fmt.Errorf("%q?", arg)
		}
	}
	r.create(p)
	return nil
}

// A diary is what a watcher of pods has seen.
type diary struct {
	stop func()

	mu    sync.Mutex
	lines []entry // guarded by mu
	last  map[string]string
}

type entry struct {
	at        time.Duration
	pod, text string
}

func watchPods(r *rig) *diary {
	g := run.NewGroup(r.Context(), 0)
	d := &diary{stop: g.Stop, last: map[string]string{}}
	began := time.Now()
	g.Go(func(ctx context.Context) {
		for e, err := range client.Pods.Watch(ctx, r.api, "", metav1.ListOptions{}) {
			if err != nil {
				return
			}
			p := e.Object.(*corev1.Pod)
			text := brief(p)
			if e.Type == watch.Deleted {
				text = "gone"
			}
			d.mu.Lock()
			if d.last[p.Name] != text {
				d.last[p.Name] = text
				d.lines = append(d.lines, entry{time.Since(began), p.Name, text})
			}
			d.mu.Unlock()
		}
	})
	synctest.Wait()
	return d
}

// read returns the lines since the last call. Different pods have no order at one
// moment, so they are sorted by name.
func (d *diary) read() (lines []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.SortStableFunc(d.lines, func(a, b entry) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.pod, b.pod)) })
	for _, e := range d.lines {
		lines = append(lines, fmt.Sprintf("+%v %s %s", e.at, e.pod, e.text))
	}
	d.lines = nil
	return lines
}

// brief returns what a person asks of a pod.
func brief(p *corev1.Pod) string {
	var b strings.Builder
	b.WriteString(string(p.Status.Phase))
	if p.Status.Reason != "" {
		b.WriteString(" (" + p.Status.Reason + ")")
	}
	if isReady(p) {
		b.WriteString(" ready")
	}
	if p.DeletionTimestamp != nil {
		b.WriteString(" terminating")
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range list {
			fmt.Fprintf(&b, " %s:", c.Name)
			switch s := c.State; {
			case s.Running != nil:
				b.WriteString("running")
			case s.Terminated != nil:
				fmt.Fprintf(&b, "%s(%d)", s.Terminated.Reason, s.Terminated.ExitCode)
			case s.Waiting != nil:
				b.WriteString(s.Waiting.Reason)
			}
			if c.RestartCount > 0 {
				fmt.Fprintf(&b, "*%d", c.RestartCount)
			}
		}
	}
	return b.String()
}
