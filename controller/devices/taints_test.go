package devices_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

// running makes a cluster in which a pod uses gpu-0, with tolerations of its request.
func running(t *testing.T, s *clienttest.Server, tolerations string) {
	t.Helper()
	s.Set(t, plugintest.Node("n1"))
	template := strings.Replace(exactTemplate, "count: 1", "count: 1, tolerations: ["+tolerations+"]", 1)
	give(t, s, class, fmt.Sprintf(oneGPU, "}, {name: gpu-1"), template, podNamed("p"))
	await(t, s, "at first", "p=n1")
}

func taintRule(t *testing.T, s *clienttest.Server, effect, selector string) {
	t.Helper()
	give(t, s, fmt.Sprintf(`{apiVersion: resource.k8s.io/v1, kind: DeviceTaintRule, metadata: {name: rule, generation: 1}, spec: {deviceSelector: {%s}, taint: {key: broken, effect: %s, timeAdded: "2000-01-01T00:00:00Z"}}}`, selector, effect))
}

// going reports whether the pod was evicted, with the events about that.
func going(t *testing.T, s *clienttest.Server) (bool, string) {
	t.Helper()
	synctest.Wait()
	var events []string
	for _, e := range clienttest.All(s, client.Events, "") {
		if e.Reason == "DeviceTaintManagerEviction" {
			events = append(events, e.Message)
		}
	}
	for _, p := range clienttest.All(s, client.Pods, "") {
		if p.DeletionTimestamp == nil {
			return false, strings.Join(events, ", ")
		}
		if c := podstate.Condition(p, corev1.DisruptionTarget); c == nil || c.Reason != "DeletionByDeviceTaintManager" {
			t.Errorf("the condition is %v", c)
		}
	}
	return true, strings.Join(events, ", ")
}

func said(s *clienttest.Server) string {
	r := clienttest.Find(s, client.DeviceTaintRules, "", "rule")
	if len(r.Status.Conditions) != 1 {
		return fmt.Sprint(r.Status.Conditions)
	}
	c := r.Status.Conditions[0]
	return fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
}

func TestTaintsOfDevicesEvictPods(t *testing.T) {
	const all = "driver: gpu.example.com"
	tests := []struct {
		name, tolerations, effect, selector string
		evicted                             bool
	}{
		{"of the device", "", "NoExecute", all + ", pool: n1, device: gpu-0", true},
		{"of all devices of the driver", "", "NoExecute", all, true},
		{"of another device", "", "NoExecute", all + ", device: gpu-1", false},
		{"of another driver", "", "NoExecute", "driver: nic.example.com", false},
		{"for new pods", "", "NoSchedule", all, false},
		{"tolerated", "{key: broken, operator: Exists, effect: NoExecute}", "NoExecute", all, false},
		{"tolerated for no time", "{key: broken, operator: Exists, effect: NoExecute, tolerationSeconds: 0}", "NoExecute", all, true},
		{"tolerated as to scheduling", "{key: broken, operator: Exists, effect: NoSchedule}", "NoExecute", all, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			controllertest.Controlling(t, withScheduler(t), func(t *testing.T, s *clienttest.Server) {
				running(t, s, tt.tolerations)
				taintRule(t, s, tt.effect, tt.selector)
				if gone, events := going(t, s); gone != tt.evicted || gone != (events == "Marking for deletion") {
					t.Errorf("evicted %v with events %q, want %v", gone, events, tt.evicted)
				}
			})
		})
	}
}

func TestTolerationEndsOrTaintDoes(t *testing.T) {
	for _, heals := range []bool{false, true} {
		controllertest.Controlling(t, withScheduler(t), func(t *testing.T, s *clienttest.Server) {
			running(t, s, "{key: broken, operator: Exists, effect: NoExecute, tolerationSeconds: 60}")
			slice := clienttest.Find(s, client.ResourceSlices, "", "n1").DeepCopy()
			slice.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "broken", Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: new(metav1.Now())}}
			s.Set(t, slice)
			time.Sleep(59 * time.Second)
			if gone, events := going(t, s); gone || events != "" {
				t.Fatalf("evicted %v with events %q before the time", gone, events)
			}
			if heals {
				slice = slice.DeepCopy()
				slice.ResourceVersion, slice.Spec.Devices[0].Taints = "", nil
				s.Set(t, slice)
			}
			time.Sleep(time.Minute)
			want := map[bool]string{false: "Marking for deletion", true: "Cancelling deletion"}[heals]
			if gone, events := going(t, s); gone == heals || events != want {
				t.Errorf("evicted %v with events %q, want %q", gone, events, want)
			}
		})
	}
}

func TestRuleReportsEvictions(t *testing.T) {
	controllertest.Controlling(t, withScheduler(t), func(t *testing.T, s *clienttest.Server) {
		running(t, s, "")
		taintRule(t, s, "None", "driver: gpu.example.com")
		want := "EvictionInProgress=False NoEffect: 2 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if the effect was NoExecute. " +
			"This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
		if got := said(s); got != want {
			t.Errorf("the rule says %q, want %q", got, want)
		}
		rule := clienttest.Find(s, client.DeviceTaintRules, "", "rule").DeepCopy()
		rule.Spec.Taint.Effect, rule.Generation = resourcev1.DeviceTaintEffectNoExecute, 2
		s.Set(t, rule)
		if gone, _ := going(t, s); !gone {
			t.Fatal("the pod was not evicted")
		}
		for _, p := range clienttest.All(s, client.Pods, "") {
			s.Remove(t, p)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, want := said(s), "EvictionInProgress=False Completed: 1 pod evicted since starting the controller."; got != want {
			t.Errorf("the rule says %q, want %q", got, want)
		}
	})
}
