package policies_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mutating returns a mutating policy of a resource, with a binding of the same name.
func (f *served) mutating(name, group, version, resource, spec string) {
	f.Helper()
	if !strings.Contains(spec, "reinvocationPolicy") {
		spec += ", reinvocationPolicy: Never"
	}
	f.apply(fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicy, metadata: {name: %s}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: ["%s"], apiVersions: ["%s"], operations: [CREATE, UPDATE], resources: [%s]}]}, %s}}`, name, group, version, resource, spec))
	f.apply(fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, metadata: {name: %s}, spec: {policyName: %s}}`, name, name))
}

func applies(expression string) string {
	return fmt.Sprintf(`mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "%s"}}]`, expression)
}

func patches(expression string) string {
	return fmt.Sprintf(`mutations: [{patchType: JSONPatch, jsonPatch: {expression: "%s"}}]`, expression)
}

const aPod = `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {containers: [{name: c, image: i}]}}`

func TestMutationsChangeObjects(t *testing.T) {
	f := serve(t)
	f.mutating("sidecar", "", "v1", "pods", `variables: [{name: image, expression: "'proxy:' + request.operation"}], `+
		applies(`Object{metadata: Object.metadata{labels: {'a': 'b'}}, spec: Object.spec{containers: [Object.spec.containers{name: 'proxy', image: variables.image}]}}`))
	f.mutating("tolerate", "", "v1", "pods", patches(`[JSONPatch{op: 'test', path: '/metadata/labels/a', value: 'b'}, JSONPatch{op: 'add', path: '/spec/tolerations/-', value: Object.spec.tolerations{key: 'x', operator: 'Exists'}}, JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/x'), value: 'y'}]`))
	f.mutating("untested", "", "v1", "pods", patches(`[JSONPatch{op: 'test', path: '/metadata/labels/a', value: 'c'}, JSONPatch{op: 'remove', path: '/metadata/labels/a'}]`))
	pod := f.apply(strings.Replace(aPod, "containers:", "tolerations: [{key: k, operator: Exists}], containers:", 1)).(*corev1.Pod)
	if n := len(pod.Spec.Containers); n != 2 || pod.Spec.Containers[1].Image != "proxy:CREATE" || pod.Spec.Containers[1].TerminationMessagePath != "/dev/termination-log" {
		t.Errorf("got %+v, want a second container with defaults", pod.Spec.Containers)
	}
	if pod.Labels["a"] != "b" || pod.Labels["example.com/x"] != "y" || len(pod.Spec.Tolerations) != 2 {
		t.Errorf("got labels %v, tolerations %v", pod.Labels, pod.Spec.Tolerations)
	}
}

func TestMutationsFail(t *testing.T) {
	for name, test := range map[string]struct {
		spec string
		code int32
		want string
	}{
		"atomic": {
			applies(`Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', args: ['x']}]}}`), 403,
			`policy 'p' with binding 'p' denied request: error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].args`,
		},
		"unknown field": {applies(`Object{spec: Object.spec{nothing: 1}}`), 403, `.spec.nothing: field not declared in schema`},
		"wrong type":    {applies(`Object{spec: Object.spec{containers: 'x'}}`), 403, `failed to convert patch object to typed object`},
		"wrong name":    {applies(`Object{spec: Object.status{nodeName: 'x'}}`), 403, `type mismatch: unexpected type name "Object.status", expected "Object.spec"`},
		"no path":       {patches(`[JSONPatch{op: 'remove', path: '/spec/nothing'}]`), 403, `policy 'p' with binding 'p' denied request: JSON Patch: `},
		"no operation":  {patches(`[JSONPatch{op: 'explode', path: '/spec'}]`), 403, `JSON Patch: `},
		"bad field":     {patches(`[JSONPatch{op: 'add', path: '/spec/unknown', value: 1}]`), 500, `unknown field`},
		"another name":  {patches(`[JSONPatch{op: 'replace', path: '/metadata/name', value: 'q'}]`), 403, `must not change metadata.name`},
		"another kind":  {patches(`[JSONPatch{op: 'replace', path: '/kind', value: 'Node'}]`), 403, `must not change the kind`},
		"no object":     {patches(`[JSONPatch{op: 'replace', path: '', value: [1]}]`), 500, ``},
		"evaluation":    {applies(`Object{spec: Object.spec{nodeName: object.spec.missing}}`), 403, `resulted in error: no such key: missing`},
		"growth":        {patches(`[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'a': 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}}] + [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24].map(i, JSONPatch{op: 'copy', from: '/metadata', path: '/metadata/x' + string(i)})`), 403, `JSON Patch: `},
		"invalid":       {patches(`[JSONPatch{op: 'replace', path: '/spec/containers/0/image', value: ''}]`), 422, `spec.containers[0].image: Required value`},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t)
			f.mutating("p", "", "v1", "pods", test.spec)
			_, err := f.create(f.admin, aPod)
			f.wants(err, test.code, test.want)
		})
	}
	f := serve(t)
	f.mutating("p", "", "v1", "pods", `failurePolicy: Ignore, `+applies(`Object{spec: Object.spec{nodeName: object.spec.missing}}`))
	f.apply(aPod)
}

// TestMutationsAreRepeated has a policy that depends on what a later one does.
func TestMutationsAreRepeated(t *testing.T) {
	labelled := func(policy string) map[string]string {
		f := serve(t)
		f.mutating("a-count", "", "v1", "pods", "reinvocationPolicy: "+policy+", "+
			applies(`Object{metadata: Object.metadata{labels: {'count': string(object.spec.containers.size())}}}`))
		f.mutating("b-add", "", "v1", "pods", "reinvocationPolicy: "+policy+", "+
			applies(`Object{spec: Object.spec{containers: [Object.spec.containers{name: 'added', image: 'i'}]}}`))
		return f.apply(aPod).(*corev1.Pod).Labels
	}
	if got := labelled("Never")["count"]; got != "1" {
		t.Errorf("without reinvocation the count is %s, want 1", got)
	}
	if got := labelled("IfNeeded")["count"]; got != "2" {
		t.Errorf("with reinvocation the count is %s, want 2", got)
	}
}

// TestMutationsSeeOtherVersions has a policy for a version that the request does not use.
func TestMutationsSeeOtherVersions(t *testing.T) {
	f := serve(t)
	f.mutating("v1", "autoscaling", "v1", "horizontalpodautoscalers", applies(`Object{spec: Object.spec{targetCPUUtilizationPercentage: 33, maxReplicas: 7}}`))
	hpa := f.apply(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: h, namespace: default}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}}`).(*autoscalingv2.HorizontalPodAutoscaler)
	if hpa.Spec.MaxReplicas != 7 || len(hpa.Spec.Metrics) != 1 || *hpa.Spec.Metrics[0].Resource.Target.AverageUtilization != 33 {
		t.Errorf("got %+v", hpa.Spec)
	}
}

func TestMutationsOfScale(t *testing.T) {
	f := serve(t)
	f.apply(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: default}, spec: {replicas: 1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`)
	f.mutating("cap", "apps", "v1", "deployments/scale", applies(`Object{spec: Object.spec{replicas: 2}}`))
	gvr := appsv1.SchemeGroupVersion.WithResource("deployments")
	obj, err := f.admin.Update(t.Context(), gvr, "default", "d", &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "default"}, Spec: autoscalingv1.ScaleSpec{Replicas: 9}}, metav1.UpdateOptions{}, "scale")
	if err != nil {
		t.Fatal(err)
	}
	if got := obj.(*autoscalingv1.Scale).Spec.Replicas; got != 2 {
		t.Errorf("replicas are %d, want what the policy made of them", got)
	}
}
