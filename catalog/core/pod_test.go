package core_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/core"
	"github.com/sampan-io/sampan/catalog/podspec"
)

func kind(t *testing.T, name string) *catalog.Kind {
	t.Helper()
	for _, k := range core.Kinds() {
		if k.Kind == name {
			return k
		}
	}
	t.Fatalf("no kind %s", name)
	return nil
}

func TestPodGrace(t *testing.T) {
	tests := []struct {
		name  string
		node  string
		phase corev1.PodPhase
		own   *int64
		asked *int64
		want  int64
	}{
		{"its own", "n", corev1.PodRunning, new(int64(30)), nil, 30},
		{"what is asked for", "n", corev1.PodRunning, new(int64(30)), new(int64(5)), 5},
		{"at once", "n", corev1.PodRunning, new(int64(30)), new(int64(0)), 0},
		{"negative is one second", "n", corev1.PodRunning, new(int64(-7)), nil, 1},
		{"negative is one second when asked for", "n", corev1.PodRunning, new(int64(30)), new(int64(-1)), 1},
		{"no node has it", "", corev1.PodPending, new(int64(30)), new(int64(5)), 0},
		{"it has ended well", "n", corev1.PodSucceeded, new(int64(30)), nil, 0},
		{"it has failed", "n", corev1.PodFailed, new(int64(30)), nil, 0},
		{"it says nothing", "n", corev1.PodRunning, nil, nil, 0},
	}
	grace := kind(t, "Pod").Grace
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: tt.node, TerminationGracePeriodSeconds: tt.own}, Status: corev1.PodStatus{Phase: tt.phase}}
			if got := grace(pod, tt.asked); got != tt.want {
				t.Errorf("Grace = %d, want %d", got, tt.want)
			}
		})
	}
}

func TestFieldsThatSelectorsMayName(t *testing.T) {
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{
			NodeName: "n", RestartPolicy: "Never", SchedulerName: "s", ServiceAccountName: "a", HostNetwork: true,
		},
		Status: corev1.PodStatus{Phase: "Running", PodIP: "10.0.0.1", NominatedNodeName: "m"},
	}
	event := &corev1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "d", Name: "p", UID: "u", APIVersion: "v1", ResourceVersion: "7", FieldPath: "f"},
		Reason:         "r", Type: "Normal", ReportingController: "c",
	}
	tests := []struct {
		kind string
		obj  catalog.Object
		want map[string]string
	}{
		{"Pod", pod, map[string]string{
			"spec.nodeName": "n", "spec.restartPolicy": "Never", "spec.schedulerName": "s", "spec.serviceAccountName": "a",
			"spec.host": "n", "status.podIPs": "",
			"spec.hostNetwork": "true", "status.phase": "Running", "status.podIP": "10.0.0.1", "status.nominatedNodeName": "m",
		}},
		{"Event", event, map[string]string{
			"involvedObject.kind": "Pod", "involvedObject.namespace": "d", "involvedObject.name": "p", "involvedObject.uid": "u",
			"involvedObject.apiVersion": "v1", "involvedObject.resourceVersion": "7", "involvedObject.fieldPath": "f",
			"reason": "r", "reportingComponent": "c", "source": "c", "type": "Normal",
		}},
		{"Node", &corev1.Node{}, map[string]string{"spec.unschedulable": "false"}},
		{"Namespace", &corev1.Namespace{Status: corev1.NamespaceStatus{Phase: "Active"}}, map[string]string{"status.phase": "Active"}},
		{"Secret", &corev1.Secret{Type: "Opaque"}, map[string]string{"type": "Opaque"}},
		{"ReplicationController", &corev1.ReplicationController{}, map[string]string{"status.replicas": "0"}},
		{"Service", &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "None", Type: "ClusterIP"}}, map[string]string{"spec.clusterIP": "None", "spec.type": "ClusterIP"}},
		{"ConfigMap", &corev1.ConfigMap{}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.kind, func(t *testing.T) {
			k := kind(t, tt.kind)
			if len(k.Fields) != len(tt.want) {
				t.Errorf("%d fields, want %d", len(k.Fields), len(tt.want))
			}
			for name, want := range tt.want {
				if got := k.Fields[name](tt.obj); got != want {
					t.Errorf("%s = %q, want %q", name, got, want)
				}
			}
		})
	}
}

// Tables are read by people and scripts, which know the columns by name.
func TestColumns(t *testing.T) {
	tests := map[string][]string{
		"ConfigMap":             {"Data", "Age"},
		"Endpoints":             {"Endpoints", "Age"},
		"Event":                 {"Last Seen", "Type", "Reason", "Object", "Subobject*", "Source*", "Message", "First Seen*", "Count*", "Name*"},
		"Namespace":             {"Status", "Age"},
		"Node":                  {"Status", "Roles", "Age", "Version", "Internal-IP*", "External-IP*", "OS-Image*", "Kernel-Version*", "Container-Runtime*"},
		"Pod":                   {"Ready", "Status", "Restarts", "Age", "IP*", "Node*", "Nominated Node*", "Readiness Gates*"},
		"ReplicationController": {"Desired", "Current", "Ready", "Age", "Containers*", "Images*", "Selector*"},
		"Secret":                {"Type", "Data", "Age"},
		"Service":               {"Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector*"},
		"ServiceAccount":        {"Age"},
	}
	for name, want := range tests {
		var got []string
		for _, c := range kind(t, name).Columns {
			if c.Priority > 0 {
				c.Name += "*"
			}
			got = append(got, c.Name)
		}
		if len(got) != len(want) {
			t.Errorf("%s: columns %q, want %q", name, got, want)
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: column %d is %q, want %q", name, i, got[i], want[i])
			}
		}
	}
}

// TestStoredPodsStayValid has pods that were stored before a rule existed: they can change where the rule does not look, and
// their templates too.
func TestStoredPodsStayValid(t *testing.T) {
	kind := kind(t, "Pod")
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", ResourceVersion: "1"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Image: "i", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "A_b"}}}},
	}}}}
	kind.Default(old)
	labelled := old.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	if errs := kind.Validate(t.Context(), labelled, old); len(errs) > 0 {
		t.Errorf("a label: %v", errs)
	}
	labelled.Spec.Containers[0].Image = "other"
	if errs := kind.Validate(t.Context(), labelled, old); len(errs) != 1 {
		t.Errorf("another image: %v, want the name of the Secret", errs)
	}
	if errs := kind.Validate(t.Context(), old, nil); len(errs) != 1 {
		t.Errorf("a new pod: %v, want the name of the Secret", errs)
	}
	template := &corev1.PodTemplateSpec{Spec: old.Spec}
	if errs := podspec.ValidateTemplate(template, template.DeepCopy(), nil); len(errs) > 0 {
		t.Errorf("the same template: %v", errs)
	}
}
