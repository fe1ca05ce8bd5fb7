package apiserver_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestJobsHaveLabelsOfTheirTemplate creates Jobs as clients do: "kubectl get jobs -l job-name=NAME" finds those without labels of their
// own.
func TestJobsHaveLabelsOfTheirTemplate(t *testing.T) {
	f := serve(t)
	generated := []string{"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"}
	for name, c := range map[string]struct {
		own, template map[string]string
		manual        bool
		want          []string
	}{
		"none":     {want: generated},
		"template": {template: map[string]string{"app": "x"}, want: append([]string{"app"}, generated...)},
		"own":      {own: map[string]string{"a": "b"}, template: map[string]string{"app": "x"}, want: []string{"a"}},
		"equal":    {own: map[string]string{"app": "x"}, template: map[string]string{"app": "x"}, want: []string{"app"}},
		"manual":   {template: map[string]string{"app": "x"}, manual: true, want: []string{"app"}},
	} {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: c.own}}
		j.Spec.Template.Labels = c.template
		j.Spec.Template.Spec = pod("").Spec
		j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		if c.manual {
			j.Spec.ManualSelector = &c.manual
			j.Spec.Selector = &metav1.LabelSelector{MatchLabels: c.template}
		}
		const jobs = "/apis/batch/v1/namespaces/default/jobs"
		created := f.do("POST", jobs, j)
		for _, a := range []answer{created, f.do("GET", jobs+"/"+name, nil)} {
			var got batchv1.Job
			if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.code >= 300 {
				t.Fatalf("%s: %d %s %v", name, a.code, a.body, err)
			}
			if keys := slices.Sorted(maps.Keys(got.Labels)); !slices.Equal(keys, c.want) {
				t.Errorf("%s: the labels are %v, want %v", name, keys, c.want)
			}
		}
	}
}
