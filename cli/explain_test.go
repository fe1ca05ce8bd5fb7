package cli_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// machine is a node with some CPUs and room for 10 pods.
func machine(name, cpu string, change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("10")}
	if change != nil {
		change(n)
	}
	return n
}

func dedicated(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "batch", Effect: corev1.TaintEffectNoSchedule}}
}

// asks is a pod that asks for CPU and memory; on a node unless that is "".
func asks(name, node, cpu, memory string, priority int32) *corev1.Pod {
	return pod(name, func(p *corev1.Pod) {
		p.Spec.NodeName, p.Spec.Priority, p.Spec.SchedulerName = node, &priority, "default-scheduler"
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	})
}

func TestExplainSaysWhyAPodGoesNowhere(t *testing.T) {
	_, url := serve(
		t,
		machine("a", "4", nil), machine("b", "16", dedicated), machine("c", "8", func(n *corev1.Node) { n.Spec.Unschedulable = true }),
		asks("old", "a", "1500m", "1Gi", 0), asks("large", "", "3", "7680Mi", 0),
	)
	c := newTerminal(t, url)
	c.want(2, `default/large: 0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.

NODE   VERDICT                                                   SCORE    LACKS
b      TaintToleration: node(s) had untolerated taint(s)         <none>   toleration of dedicated=batch:NoSchedule
c      NodeUnschedulable: node(s) were unschedulable             <none>   <none>
a      NodeResourcesFit: Insufficient cpu, Insufficient memory   <none>   cpu: requested 3, free 2500m of 4; memory: requested 7680Mi, free 7Gi of 8Gi

It would fit after one of these changes, the smallest first:
  on b: tolerate the taint dedicated=batch:NoSchedule
  on c: uncordon it
  on a: 500m more cpu free, and 512Mi more memory free

Preemption is not helpful: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.
`, "error: pod default/large does not fit any node\n", "scheduler", "explain", "pod/large")
}

// TestExplainNamesASchedulerThatDoesNotDecide has pods of schedulers of which nothing is known,
// of one that has refused a pod, and of one that has placed one.
func TestExplainNamesASchedulerThatDoesNotDecide(t *testing.T) {
	of := func(scheduler string, p *corev1.Pod) *corev1.Pod {
		p.Spec.SchedulerName = scheduler
		return p
	}
	refused := of("picky", asks("refused", "", "1", "1Gi", 0))
	refused.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
	_, url := serve(
		t, machine("a", "8", nil),
		of("tide", asks("lost", "", "1", "1Gi", 0)), refused, of("picky", asks("next", "", "1", "1Gi", 0)),
		of("quick", asks("placed", "a", "1", "1Gi", 0)), of("quick", asks("second", "", "1", "1Gi", 0)),
	)
	c := newTerminal(t, url)
	lost := `default/lost: spec.schedulerName is "tide", and no scheduler with that name has processed it yet: is one running? If so: would be scheduled on a`
	for pod, want := range map[string]string{"lost": lost, "next": "default/next: would be scheduled on a", "second": "default/second: would be scheduled on a"} {
		if out := c.run("scheduler", "explain", "pod/"+pod).out; !strings.HasPrefix(out, want+"\n") {
			t.Errorf("it printed\n%s\nwant %s", out, want)
		}
	}
	if out := c.run("scheduler", "explain", "pod/lost", "-o", "json").out; !strings.Contains(out, `"unattended": true`) {
		t.Errorf("it printed\n%s", out)
	}
}

func TestExplainFindsAllRefusalsOfANode(t *testing.T) {
	_, url := serve(t, machine("b", "2", dedicated), pod("picky", func(p *corev1.Pod) {
		*p = *asks("picky", "", "3", "1Gi", 0)
		p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	}))
	got := newTerminal(t, url).run("scheduler", "explain", "pod/picky", "-o", "wide")
	for _, want := range []string{
		"0/1 nodes are available: 1 node(s) had untolerated taint(s).",
		"TaintToleration: node(s) had untolerated taint(s); NodeAffinity: node(s) didn't match Pod's node affinity/selector; NodeResourcesFit: Insufficient cpu",
		"on b: tolerate the taint dedicated=batch:NoSchedule, and the label disk=ssd, and 1 more cpu free, more than evicting other pods frees (3 requested, 2 in total)\n",
	} {
		if got.code != 2 || !strings.Contains(got.out, want) {
			t.Errorf("exit code %d, want 2 and %q in\n%s%s", got.code, want, got.out, got.err)
		}
	}
}

func TestExplainNamesWhomPreemptionWouldEnd(t *testing.T) {
	_, url := serve(t, machine("a", "4", nil), machine("b", "4", nil), asks("old", "a", "3", "1Gi", 5), asks("older", "b", "3", "1Gi", 1), asks("new", "", "2", "1Gi", 10))
	got := newTerminal(t, url).run("scheduler", "explain", "pod/new")
	if want := "Preemption would make room on b by evicting default/older (priority 1).\n"; got.code != 2 || !strings.HasSuffix(got.out, want) {
		t.Errorf("exit code %d, want 2 and at the end %q:\n%s%s", got.code, want, got.out, got.err)
	}
}

func TestExplainJudgesANodeWithoutThePodItself(t *testing.T) {
	_, url := serve(t, machine("a", "4", nil), asks("web", "a", "3", "1Gi", 0))
	c := newTerminal(t, url)
	got := c.run("scheduler", "explain", "pod", "web")
	if want := "default/web: is on a, and still fits there; scheduled again, would be scheduled on a\n"; got.code != 0 || !strings.HasPrefix(got.out, want) {
		t.Errorf("exit code %d, want 0 and first %q:\n%s%s", got.code, want, got.out, got.err)
	}
	_, url = serve(t, machine("a", "4", dedicated), asks("web", "a", "3", "1Gi", 0))
	got = newTerminal(t, url).run("scheduler", "explain", "pod/web")
	if want := "default/web: is on a, and would not fit there now (TaintToleration: node(s) had untolerated taint(s)); scheduled again, 0/1 nodes are available:"; got.code != 0 || !strings.HasPrefix(got.out, want) {
		t.Errorf("exit code %d, want 0 and first %q:\n%s%s", got.code, want, got.out, got.err)
	}
}

func TestExplainTakesFilesOfWhatDoesNotExist(t *testing.T) {
	_, url := serve(t, machine("a", "4", nil), asks("old", "a", "1", "1Gi", 0))
	file := write(t, filepath.Join(t.TempDir(), "web.yaml"), strings.ReplaceAll(webYAML, "image: demo", "image: demo, resources: {requests: {cpu: 1500m}}"))
	got := newTerminal(t, url).run("scheduler", "explain", "-f", file, "-o", "json")
	var list struct {
		Kind  string
		Items []struct {
			Name, Owner, NodeName, Message string
			Fits                           bool
			Nodes                          []struct {
				Scores   []struct{ Plugin string }
				Refusals []struct {
					Plugin string
					Lacks  []struct{ What, Asked, Free, Total string }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(got.out), &list); err != nil {
		t.Fatalf("%v\n%s%s", err, got.out, got.err)
	}
	var where []string
	for _, i := range list.Items {
		where = append(where, fmt.Sprint(i.Owner, " ", i.Name, " ", i.Fits, " ", i.NodeName))
	}
	want := "[replicationcontroller/web web-0 true a replicationcontroller/web web-1 true a replicationcontroller/web web-2 false ]"
	if fmt.Sprint(where) != want || got.code != 2 || got.err != "error: 1 of 3 pods goes nowhere\n" || list.Kind != "SchedulingExplanationList" {
		t.Fatalf("exit code %d, got %v, want %s\n%s", got.code, where, want, got.err)
	}
	if n := list.Items[0].Nodes[0]; len(n.Scores) == 0 || len(n.Refusals) > 0 {
		t.Errorf("a node that fits: %+v, want scores", n)
	}
	if r := list.Items[2].Nodes[0].Refusals; len(r) != 1 || fmt.Sprint(r[0]) != "{NodeResourcesFit [{cpu 1500m 0 4}]}" {
		t.Errorf("refusals %v, want what is missing", r)
	}
}

func TestExplainByAConfiguration(t *testing.T) {
	_, url := serve(t, machine("b", "4", dedicated), asks("web", "", "3", "1Gi", 0))
	c := newTerminal(t, url)
	conf := write(t, filepath.Join(t.TempDir(), "conf.yaml"), `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler, plugins: {multiPoint: {disabled: [{name: TaintToleration}]}}}]
`)
	if got := c.run("scheduler", "explain", "pod/web", "--config", conf); got.code != 0 || !strings.HasPrefix(got.out, "default/web: would be scheduled on b\n") {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.err)
	}
	other := write(t, filepath.Join(t.TempDir(), "other.yaml"), `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: second}]
`)
	c.want(1, "", `error: pod default/web: spec.schedulerName: must be a profile of --config (second), got "default-scheduler"`+"\n",
		"scheduler", "explain", "pod/web", "--config", other)
}

func TestExplainRefusesWhatCannotBeMeant(t *testing.T) {
	_, url := serve(t, machine("a", "4", nil), asks("web", "", "3", "1Gi", 0))
	c := newTerminal(t, url)
	usage := "usage: see 'sampan scheduler explain --help'\n"
	dir := t.TempDir()
	pods := "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {%s containers: [{name: c, image: demo}]}\n"
	classless := write(t, filepath.Join(dir, "classless.yaml"), fmt.Sprintf(pods, "priorityClassName: none,"))
	for _, tt := range []struct {
		code int
		err  string
		args []string
	}{
		{1, "error: must specify pod/NAME, or a file with -f or -k\n" + usage, nil},
		{1, "error: web: must be pod/NAME or pod NAME, or a file with -f or -k\n" + usage, []string{"web"}},
		{1, "error: a pod name and -f or -k are mutually exclusive\n" + usage, []string{"pod/web", "-f", classless}},
		{1, "error: -o name: must be json, yaml or wide; the default is tables\n" + usage, []string{"pod/web", "-o", "name"}},
		{1, "error: node/a: is a Node, must be a pod: pod/NAME, or a file with -f\n", []string{"node/a"}},
		{1, "error: pod/web pod/b: must be one pod: pod/NAME or pod NAME\n", []string{"pod/web", "pod/b"}},
		{1, `error: pod default/x: spec.priorityClassName: no PriorityClass with name none was found` + "\n", []string{"-f", classless}},
		{4, `Error from server (NotFound): pods "none" not found` + "\n", []string{"pod/none"}},
	} {
		c.want(tt.code, "", tt.err, append([]string{"scheduler", "explain"}, tt.args...)...)
	}
}

// TestExplainNamesClaims explains a pod that waits for a claim, which no node refuses.
func TestExplainNamesClaims(t *testing.T) {
	waits := asks("db", "", "1", "1Gi", 0)
	waits.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "c"}}
	claim.Status.Phase = corev1.ClaimPending
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data.1"}, Type: "Warning", Reason: "ProvisioningFailed", Message: "only ReadWriteOnce is supported",
		InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: "data", UID: "c"},
	}
	_, url := serve(t, machine("a", "4", nil), waits, claim, event)
	got := newTerminal(t, url).run("scheduler", "explain", "pod/db")
	want := "default/db: not yet on a node: claim data is not bound to a volume; ProvisioningFailed: only ReadWriteOnce is supported; without that: "
	if got.code != 2 || !strings.HasPrefix(got.out, want) {
		t.Errorf("%+v\nwant %s", got, want)
	}
}

// TestExplainWithoutTheObstacle has a pod with a claim that does not exist: the rest of the answer is about a pod without it.
func TestExplainWithoutTheObstacle(t *testing.T) {
	p := asks("db", "", "1", "1Gi", 0)
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	_, url := serve(t, machine("a", "4", nil), p)
	c := newTerminal(t, url)
	c.want(2, `default/db: not yet on a node: claim data does not exist; without that: would be scheduled on a

NODE   VERDICT   SCORE   LACKS
a      fits      452     <none>
`, "error: pod default/db waits for an object that it names\n", "scheduler", "explain", "pod/db")
}
