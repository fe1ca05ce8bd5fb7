package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/apiserver/admission"
)

func cpu(amount string) corev1.ResourceList {
	switch amount {
	case "":
		return nil
	case "none":
		return corev1.ResourceList{}
	}
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
}

func TestRuntimeClass(t *testing.T) {
	const (
		mismatch = `pods "p" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead`
		without  = `pods "p" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead`
	)
	m := newMemory(nil)
	m.put("runtimeclasses", &nodev1.RuntimeClass{ObjectMeta: meta("", "plain"), Handler: "plain"})
	m.put("runtimeclasses", &nodev1.RuntimeClass{
		ObjectMeta: meta("", "kata"), Handler: "kata",
		Overhead: &nodev1.Overhead{PodFixed: cpu("250m")},
		Scheduling: &nodev1.Scheduling{
			NodeSelector: map[string]string{"virtual": "yes"},
			Tolerations:  []corev1.Toleration{{Key: "virtual", Operator: corev1.TolerationOpExists}},
		},
	})
	tests := []struct {
		name, class, overhead string
		selector              map[string]string
		want                  string // overhead, selector and tolerations
		refuse                string
	}{
		{name: "no class", want: " map[] []"},
		{name: "an unknown class", class: "gvisor", refuse: `pods "p" is forbidden: pod rejected: RuntimeClass "gvisor" not found`},
		{name: "overhead without a class", overhead: "1", refuse: without},
		{name: "empty overhead without a class", overhead: "none", refuse: without},
		{name: "a class without overhead", class: "plain", want: " map[] []"},
		{name: "overhead, but not of its class", class: "plain", overhead: "1", refuse: without},
		{name: "all that a class gives", class: "kata", want: "250m map[virtual:yes] [virtual]"},
		{name: "the same overhead", class: "kata", overhead: "0.25", want: "250m map[virtual:yes] [virtual]"},
		{name: "other overhead", class: "kata", overhead: "1", refuse: mismatch},
		{name: "merged selectors", class: "kata", selector: map[string]string{"a": "b", "virtual": "yes"}, want: "250m map[a:b virtual:yes] [virtual]"},
		{
			name: "a conflict of selectors", class: "kata", selector: map[string]string{"virtual": "no"},
			refuse: `pods "p" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[virtual] = yes; pod.spec.nodeSelector[virtual] = no`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: meta("ship", "p"), Spec: corev1.PodSpec{NodeSelector: tt.selector, Overhead: cpu(tt.overhead)}}
			if tt.class != "" {
				pod.Spec.RuntimeClassName = &tt.class
			}
			p, a := admission.NewRuntimeClass(m), creating(podKind(), pod)
			err := p.Admit(t.Context(), a)
			if err == nil {
				err = p.Validate(t.Context(), a)
			}
			if tt.refuse != "" {
				if !apierrors.IsForbidden(err) || err.Error() != tt.refuse {
					t.Errorf("err = %v, want %s", err, tt.refuse)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			amount := ""
			if q, ok := pod.Spec.Overhead[corev1.ResourceCPU]; ok {
				amount = q.String()
			}
			var keys []string
			for _, toleration := range pod.Spec.Tolerations {
				keys = append(keys, toleration.Key)
			}
			if got := fmt.Sprint(amount, " ", pod.Spec.NodeSelector, " ", keys); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestTolerationsAreMerged writes tolerations as key:operator:value:effect:seconds.
func TestTolerationsAreMerged(t *testing.T) {
	read := func(text string) (all []corev1.Toleration) {
		for word := range strings.FieldsSeq(text) {
			parts := append(strings.Split(word, ":"), "", "", "", "")
			one := corev1.Toleration{Key: parts[0], Operator: corev1.TolerationOperator(parts[1]), Value: parts[2], Effect: corev1.TaintEffect(parts[3])}
			if parts[4] != "" {
				one.TolerationSeconds = new(int64)
				fmt.Sscan(parts[4], one.TolerationSeconds)
			}
			all = append(all, one)
		}
		return all
	}
	for _, tt := range []struct{ name, pod, class, want string }{
		{"different", "a:Exists", "b:Exists", "a:Exists b:Exists"},
		{"equal", "a:Equal:x", "a:Equal:x", "a:Equal:x"},
		{"the class says more", "a:Equal:x", "a:Exists", "a:Exists"},
		{"the pod says more", "a:Exists", "a:Equal:x", "a:Exists"},
		{"other values", "a:Equal:x", "a:Equal:y", "a:Equal:x a:Equal:y"},
		{"every key", "a:Equal:x:NoSchedule b:Exists", ":Exists", ":Exists"},
		{"every effect", "a:Exists::NoExecute", "a:Exists", "a:Exists"},
		{"one effect", "a:Exists::NoExecute", "a:Exists::NoSchedule", "a:Exists::NoExecute a:Exists::NoSchedule"},
		{"a longer time", "a:Exists::NoExecute:5", "a:Exists::NoExecute:9", "a:Exists::NoExecute:9"},
		{"for ever", "a:Exists::NoExecute:5", "a:Exists::NoExecute", "a:Exists::NoExecute"},
		{"a number", "a:Gt:5", "a:Gt:5 a:Gt:7", "a:Gt:5 a:Gt:7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, class := newMemory(nil), "c"
			m.put("runtimeclasses", &nodev1.RuntimeClass{ObjectMeta: meta("", class), Scheduling: &nodev1.Scheduling{Tolerations: read(tt.class)}})
			pod := &corev1.Pod{ObjectMeta: meta("ship", "p"), Spec: corev1.PodSpec{RuntimeClassName: &class, Tolerations: read(tt.pod)}}
			if err := admission.NewRuntimeClass(m).Admit(t.Context(), creating(podKind(), pod)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(read(tt.want), pod.Spec.Tolerations); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
