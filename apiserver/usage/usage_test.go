package usage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/sampan-io/sampan/catalog"
)

// A cluster is a fake: two nodes, of which the second does not answer.
type cluster struct {
	t     *testing.T
	meter *Meter
	start time.Time

	mu      sync.Mutex
	fetched int
	text    func(run time.Duration) string // of n1, that has run for so long
	hangs   bool                           // no node answers
}

func (c *cluster) Get(_ context.Context, gvr schema.GroupVersionResource, _, name string) (catalog.Object, error) {
	if name == "n1" || name == "n2" || strings.HasPrefix(name, "many-") {
		return node(name), nil
	}
	return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"zone": "a"}}}
}

func pod(name, node string, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: name, Labels: map[string]string{"app": name}}}
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	for _, n := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: n})
	}
	return p
}

func (c *cluster) fetch(ctx context.Context, n *corev1.Node) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetched++
	if c.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if n.Name == "n2" {
		return nil, errors.New("connection refused")
	}
	return []byte(c.text(time.Since(c.start))), nil
}

// line is what the kubelet says of one container.
func line(pod, container string, cpu, memory float64, started time.Time) string {
	labels := fmt.Sprintf("{container=%q,namespace=\"ship\",pod=%q}", container, pod)
	return fmt.Sprintf("container_cpu_usage_seconds_total%[1]s %[2]f\ncontainer_memory_working_set_bytes%[1]s %[3]f\ncontainer_start_time_seconds%[1]s %[4]f\n",
		labels, cpu, memory, float64(started.UnixNano())/1e9)
}

// within runs f with a cluster in which time passes at once.
func within(t *testing.T, f func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, start: time.Now()}
		var err error
		if c.meter, err = New(Options{Objects: c, Fetch: c.fetch}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		f(t, c)
	})
}

func (c *cluster) pods(pods ...*corev1.Pod) map[string]string {
	c.t.Helper()
	var from []catalog.Object
	for _, p := range pods {
		from = append(from, p)
	}
	made, err := c.meter.Pods(c.t.Context(), from)
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]string{}
	for _, obj := range made {
		m := obj.(*metricsv1beta1.PodMetrics)
		text := m.Window.Duration.String()
		for _, u := range m.Containers {
			text += fmt.Sprintf(" %s=%s,%s", u.Name, u.Usage.Cpu(), u.Usage.Memory())
		}
		out[m.Name] = text
		if m.Labels["app"] != m.Name || m.Namespace != "ship" || m.Timestamp.IsZero() {
			c.t.Errorf("metadata of %s: %+v at %v", m.Name, m.ObjectMeta, m.Timestamp)
		}
	}
	return out
}

func want(t *testing.T, got map[string]string, pairs ...string) {
	t.Helper()
	if len(got) != len(pairs)/2 {
		t.Errorf("got %v, want %v", got, pairs)
	}
	for i := 0; i < len(pairs); i += 2 {
		if got[pairs[i]] != pairs[i+1] {
			t.Errorf("%s: got %q, want %q", pairs[i], got[pairs[i]], pairs[i+1])
		}
	}
}

// TestRates reads the metrics of a pod that uses a quarter of a core, more and more memory, and has a helper that is idle.
func TestRates(t *testing.T) {
	within(t, func(t *testing.T, c *cluster) {
		c.text = func(run time.Duration) string {
			return line("web", "web", run.Seconds()/4, 1<<20+run.Seconds(), c.start) + line("web", "helper", 0, 2048, c.start) +
				line("stranger", "x", 1, 1, c.start)
		}
		web := pod("web", "n1", "web", "helper")
		waiting := pod("waiting", "n1", "web")
		waiting.Status.Phase = corev1.PodPending
		before := time.Now()
		want(t, c.pods(web, pod("silent", "n2", "x"), pod("lost", "n9", "x"), pod("unbound", "", "x"), waiting), "web", "1s web=250m,1048637 helper=0,2Ki")
		if time.Since(before) != time.Second { // usage-U3
			t.Errorf("the first reading took %v", time.Since(before))
		}
		fetched := c.fetched
		time.Sleep(fresh - time.Millisecond) // usage-U2
		want(t, c.pods(web), "web", "1s web=250m,1048637 helper=0,2Ki")
		if c.fetched != fetched {
			t.Error("a fresh sample was taken again")
		}
		time.Sleep(15*time.Second - fresh + time.Millisecond)
		want(t, c.pods(web), "web", "15s web=250m,1048652 helper=0,2Ki")
		time.Sleep(longest + time.Second)
		want(t, c.pods(web), "web", "1s web=250m,1048714 helper=0,2Ki")
	})
}

// TestReadersShareSamples has several clients that read at once.
func TestReadersShareSamples(t *testing.T) {
	within(t, func(t *testing.T, c *cluster) {
		c.text = func(run time.Duration) string { return line("web", "web", run.Seconds(), 1024, c.start) }
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { want(t, c.pods(pod("web", "n1", "web")), "web", "1s web=1,1Ki") })
		}
		wg.Wait()
		if c.fetched != 2 {
			t.Errorf("%d samples were taken, want 2", c.fetched)
		}
	})
}

// TestRestarts has containers that start again between two samples (usage-U4).
func TestRestarts(t *testing.T) {
	within(t, func(t *testing.T, c *cluster) {
		again := time.Time{}
		c.text = func(run time.Duration) string {
			if again.IsZero() {
				return line("web", "web", run.Seconds(), 1024, c.start)
			}
			return line("web", "web", time.Since(again).Seconds()/2, 1024, again) + line("new", "web", 3, 1024, time.Now().Add(-500*time.Millisecond))
		}
		web := pod("web", "n1", "web")
		want(t, c.pods(web), "web", "1s web=1,1Ki")
		time.Sleep(10 * time.Second)
		again = time.Now()
		time.Sleep(4 * time.Second)
		want(t, c.pods(web, pod("new", "n1", "web")), "web", "4s web=500m,1Ki") // nothing is known of the new one yet
		fetched := c.fetched
		time.Sleep(shortest)
		c.pods(pod("late", "n1", "web"))
		if c.fetched != fetched+1 {
			t.Error("no sample is taken for a pod that was not in the last one")
		}
	})
}

// TestPodsAreNotReportedByHalf has a pod with a container of which the memory is not known.
func TestPodsAreNotReportedByHalf(t *testing.T) {
	within(t, func(t *testing.T, c *cluster) {
		c.text = func(run time.Duration) string {
			return line("web", "web", run.Seconds(), 1024, c.start) + "container_cpu_usage_seconds_total{container=\"b\",namespace=\"ship\",pod=\"web\"} 5\n"
		}
		want(t, c.pods(pod("web", "n1", "web", "b")))
	})
}

func TestNodes(t *testing.T) {
	within(t, func(t *testing.T, c *cluster) {
		c.text = func(run time.Duration) string {
			return fmt.Sprintf("node_cpu_usage_seconds_total %f %d\nnode_memory_working_set_bytes 4096\nscrape_error 0\n", 2*run.Seconds(), time.Now().UnixMilli())
		}
		made, err := c.meter.Nodes(t.Context(), []catalog.Object{node("n1"), node("n2")})
		if err != nil || len(made) != 1 {
			t.Fatalf("%v, %v", made, err)
		}
		m := made[0].(*metricsv1beta1.NodeMetrics)
		if m.Name != "n1" || m.Labels["zone"] != "a" || m.Usage.Cpu().String() != "2" || m.Usage.Memory().String() != "4Ki" || m.Window.Duration != time.Second {
			t.Errorf("%+v", m)
		}
	})
}

// kept returns of how many nodes there are samples, and whether they will be forgotten.
func (c *cluster) kept() (nodes int, timer bool) {
	synctest.Wait()
	c.meter.mu.Lock()
	defer c.meter.mu.Unlock()
	return len(c.meter.nodes), c.meter.forget != nil
}

// TestSamplesAreForgotten checks that nothing is kept, and no timer runs, when no client reads (usage-U2).
func TestSamplesAreForgotten(t *testing.T) {
	within(t, func(t *testing.T, c *cluster) {
		c.text = func(time.Duration) string { return "" }
		c.pods(pod("web", "n1", "web"))
		time.Sleep(longest / 2)
		c.pods(pod("web", "n1", "web"))
		time.Sleep(longest - time.Second)
		if kept, _ := c.kept(); kept != 1 {
			t.Error("the samples are gone too early")
		}
		time.Sleep(longest)
		if kept, timer := c.kept(); kept != 0 || timer {
			t.Error("the samples are still there")
		}
	})
}

// TestHostileNodes has nodes that answer with nonsense: there are no metrics then, and no panic.
func TestHostileNodes(t *testing.T) {
	for _, text := range []string{
		"no metrics at all", "scrape_error 1\n" + line("web", "web", 1, 1, time.Now()), "container_cpu_usage_seconds_total NaN\n",
		line("web", "web", -1, 1, time.Now()),
		"container_cpu_usage_seconds_total{container=\"web\",namespace=\"ship\",pod=\"web\"} +Inf\n", strings.Repeat("{", 1000),
		"container_cpu_usage_seconds_total{container=\"web\",namespace=\"ship\",pod=\"web\"} 1 9223372036854775807\n",
		"node_cpu_usage_seconds_total 1e300\nnode_memory_working_set_bytes 1e300\n", "# TYPE scrape_error histogram\nscrape_error_bucket{le=\"1\"} 1\n",
	} {
		within(t, func(t *testing.T, c *cluster) {
			c.text = func(time.Duration) string { return text }
			want(t, c.pods(pod("web", "n1", "web")))
			if made, err := c.meter.Nodes(t.Context(), []catalog.Object{node("n1")}); len(made) > 0 || err != nil {
				t.Errorf("%q: %v, %v", text, made, err)
			}
		})
	}
	within(t, func(t *testing.T, c *cluster) { // within the range, and beyond what a quantity can say
		c.text = func(run time.Duration) string { return line("web", "web", run.Seconds()*1e15, 1e18, c.start) }
		want(t, c.pods(pod("web", "n1", "web")), "web", "1s web=1G,976562500000000Ki")
	})
}

// TestNodesThatHang has many clients that read the metrics of a node that does not answer: they wait together, not one after
// the other.
func TestNodesThatHang(t *testing.T) {
	within(t, func(t *testing.T, c *cluster) {
		c.text, c.hangs = func(run time.Duration) string { return line("web", "web", run.Seconds(), 1024, c.start) }, true
		before := time.Now()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { want(t, c.pods(pod("web", "n1", "web"))) })
		}
		wg.Wait()
		if took := time.Since(before); took != patience || c.fetched != 1 {
			t.Errorf("it took %v and %d tries, want %v and 1", took, c.fetched, patience)
		}
		c.hangs = false
		time.Sleep(fresh)
		want(t, c.pods(pod("web", "n1", "web")), "web", "1s web=1,1Ki")
	})
}

// TestManyNodesAreWaitedForTogether reads the metrics of more nodes than are asked at the same time.
func TestManyNodesAreWaitedForTogether(t *testing.T) {
	within(t, func(t *testing.T, c *cluster) {
		c.text = func(run time.Duration) string {
			return fmt.Sprintf("node_cpu_usage_seconds_total %f\nnode_memory_working_set_bytes 4096\n", run.Seconds())
		}
		var nodes []catalog.Object
		for i := range 10 * together {
			nodes = append(nodes, node(fmt.Sprint("many-", i)))
		}
		before := time.Now()
		made, err := c.meter.Nodes(t.Context(), nodes)
		if err != nil || len(made) != len(nodes) || time.Since(before) != shortest {
			t.Errorf("%d nodes after %v, %v", len(made), time.Since(before), err)
		}
	})
}

func TestEndedRequests(t *testing.T) {
	within(t, func(t *testing.T, c *cluster) {
		c.text = func(time.Duration) string { return "" }
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := c.meter.Pods(ctx, []catalog.Object{pod("web", "n1", "web")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want that of the context", err)
		}
	})
}
