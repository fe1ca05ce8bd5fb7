package cli_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/client"
)

// A pier is a node n1 with pods web-1 and web-2, which have a controller and no room
// in their budget.
type pier struct {
	*testing.T
	*terminal
	api client.Interface
}

func newPier(t *testing.T) *pier {
	api, c := realServer(t)
	p := &pier{t, c, api}
	_, err := client.Nodes.Create(t.Context(), api, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	p.must(err)
	for _, name := range []string{"web-1", "web-2"} {
		pod, err := client.Pods.Create(t.Context(), api, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, Labels: map[string]string{"app": "web", "name": name},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ReplicationController", Name: "web", UID: "u", Controller: new(true)}},
			},
			Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "demo:v1"}}},
		})
		p.must(err)
		pod = pod.DeepCopy()
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		_, err = client.Pods.Update(t.Context(), api, pod, "status")
		p.must(err)
	}
	p.budget("web")
	p.allow(0)
	return p
}

func (p *pier) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *pier) budget(name string) {
	p.Helper()
	_, err := client.PodDisruptionBudgets.Create(p.Context(), p.api, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	})
	p.must(err)
}

// allow is what the controller of budgets says.
func (p *pier) allow(disruptions int32) {
	p.Helper()
	b, err := client.PodDisruptionBudgets.Get(p.Context(), p.api, "default", "web")
	p.must(err)
	b = b.DeepCopy()
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation, DisruptionsAllowed: disruptions, DesiredHealthy: 2, CurrentHealthy: 2, ExpectedPods: 2,
	}
	_, err = client.PodDisruptionBudgets.Update(p.Context(), p.api, b, "status")
	p.must(err)
}

const noRoom = "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget web needs 2 healthy pods and has 2 currently"

func TestDrainGoesOnWhenTheBudgetHasRoom(t *testing.T) {
	p := newPier(t)
	refused := 0
	p.onLine = func(text string) {
		if strings.Contains(text, noRoom) {
			if refused++; refused == 2 { // once for each pod
				p.allow(1)
			}
		}
		if strings.Contains(text, "pod/web-1 evicted") {
			p.allow(1)
		}
	}
	p.want(
		0,
		"node/n1 cordoned\nevicting pod default/web-1\nevicting pod default/web-2\npod/web-1 evicted\npod/web-2 evicted\nnode/n1 drained\n",
		"pod default/web-1: "+noRoom+"\npod default/web-2: "+noRoom+"\n",
		"drain", "n1", "--grace-period=0",
	)
}

func TestAnInterruptedDrainSaysWhatIsLeft(t *testing.T) {
	p := newPier(t)
	ctx, cancel := context.WithCancel(t.Context())
	p.onLine = func(text string) {
		if strings.Contains(text, "web-2: "+noRoom) {
			cancel()
		}
	}
	got := p.runIn(ctx, "drain", "n1")
	want := "interrupted: the node stays cordoned, and evicted pods continue to terminate\n" +
		"  pod default/web-1 is not deleted yet: " + noRoom + "\n  pod default/web-2 is not deleted yet: " + noRoom + "\n"
	if got.code != 130 || !strings.HasSuffix(got.err, want) {
		t.Errorf("exit code %d\nstderr:\n%swant 130\nstderr:\n%s", got.code, got.err, want)
	}
}

func TestDrainSaysWhatStandsInTheWay(t *testing.T) {
	p := newPier(t)
	p.budget("second")
	got := p.run("drain", "n1")
	if got.code != 1 || strings.Count(got.err, "more than one PodDisruptionBudget") != 2 {
		t.Errorf("exit code %d\nstderr:\n%swant 1, and that there are two budgets, for each pod", got.code, got.err)
	}
	p.must(client.PodDisruptionBudgets.Delete(t.Context(), p.api, "default", "second", metav1.DeleteOptions{}))
	p.want(
		3, "node/n1 already cordoned\nevicting pod default/web-1\n",
		"pod default/web-1: "+noRoom+"\nerror: timed out after 300ms: 1 pod is not deleted yet\nerror: pod default/web-1: "+noRoom+"\n",
		"drain", "n1", "--timeout=300ms", "--pod-selector=name=web-1",
	)
}
