package discovery_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"slices"
	"testing"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	registrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/sampan-io/sampan/apiserver/aggregation"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/definitions"
	"github.com/sampan-io/sampan/apiserver/discovery"
	"github.com/sampan-io/sampan/catalog"
)

// A registry has stored APIServices.
type registry []catalog.Object

func (r registry) List(context.Context, schema.GroupVersionResource, string, fields.Set) ([]catalog.Object, error) {
	return r, nil
}

func (r registry) Get(context.Context, schema.GroupVersionResource, string, string) (catalog.Object, error) {
	return nil, nil
}

// registered returns the APIService of a version; server says whether another server has it.
func registered(group, version string, groupPriority, versionPriority int32, server bool) *registrationv1.APIService {
	s := &registrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: version + "." + group},
		Spec:       registrationv1.APIServiceSpec{Group: group, Version: version, GroupPriorityMinimum: groupPriority, VersionPriority: versionPriority},
	}
	if server {
		s.Spec.Service = &registrationv1.ServiceReference{Namespace: "default", Name: "server", Port: new(int32(443))}
	}
	return s
}

func defined(group, kind string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: kind + "s", Singular: kind, Kind: kind, ListKind: kind + "List"}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: names.Plural + "." + group},
		Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Group: group, Scope: apiextensionsv1.NamespaceScoped, Names: names},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			AcceptedNames: names, StoredVersions: versions[:1],
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue},
				{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
			},
		},
	}
	for i, v := range versions {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: v, Served: true, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
		})
	}
	return crd
}

// TestGroupsAreInUpstreamsOrder has custom groups, which have priority 1000, and those of other servers with more and less.
func TestGroupsAreInUpstreamsOrder(t *testing.T) {
	kinds := apiservertest.Kinds(t)
	builtIn := kinds.Snapshot()
	defs := definitions.New(definitions.Options{Catalog: kinds})
	defs.Load(slices.Values([]*apiextensionsv1.CustomResourceDefinition{
		defined("queue.example.com", "queue", "v1beta1", "v1"), defined("a.example.com", "a", "v2"), defined("chosen.example.com", "chosen", "v1", "v2"),
		defined("both.example.com", "both", "v1"),
	}))
	others, err := aggregation.New(t.Context(), aggregation.Options{
		Catalog: kinds, BuiltIn: builtIn, Certificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, nil },
		Objects: registry{
			registered("visibility.example.com", "v1beta1", 100, 100, true), registered("visibility.example.com", "v1beta2", 90, 200, true),
			registered("first.example.com", "v1", 18500, 15, true), registered("sea.example.com", "v1", 2000, 15, true),
			registered("both.example.com", "v1alpha1", 1500, 200, true), registered("equal.example.com", "v1", 1000, 100, true),
			registered("chosen.example.com", "v1", 1700, 300, false), registered("chosen.example.com", "v2", 1600, 100, false),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := discovery.NewAggregated(kinds, version.Info{}, others)
	type group struct {
		name     string
		versions []string
	}
	head := []group{
		{"first.example.com", []string{"v1"}},
		{"apiregistration.k8s.io", []string{"v1"}},
		{"apps", []string{"v1"}},
		{"events.k8s.io", []string{"v1"}},
		{"authentication.k8s.io", []string{"v1"}},
		{"authorization.k8s.io", []string{"v1"}},
		{"autoscaling", []string{"v2", "v1"}},
		{"batch", []string{"v1"}},
		{"certificates.k8s.io", nil},
		{"networking.k8s.io", nil},
		{"policy", nil},
		{"rbac.authorization.k8s.io", nil},
		{"storage.k8s.io", nil},
		{"admissionregistration.k8s.io", nil},
		{"apiextensions.k8s.io", nil},
		{"scheduling.k8s.io", nil},
		{"coordination.k8s.io", nil},
		{"node.k8s.io", nil},
		{"discovery.k8s.io", nil},
		{"resource.k8s.io", nil},
		{"flowcontrol.apiserver.k8s.io", nil},
	}
	head[0], head[1] = head[1], head[0]
	middle := []group{
		{"sea.example.com", []string{"v1"}}, {"chosen.example.com", []string{"v1", "v2"}}, {"both.example.com", []string{"v1alpha1", "v1"}},
	}
	byService := []group{{"equal.example.com", []string{"v1"}}, {"queue.example.com", []string{"v1", "v1beta1"}}, {"a.example.com", []string{"v2"}}}
	byName := []group{byService[2], byService[0], byService[1]}
	tail := []group{{"metrics.k8s.io", []string{"v1beta1"}}, {"visibility.example.com", []string{"v1beta2", "v1beta1"}}}

	check := func(what string, got []group, want ...group) {
		t.Helper()
		got = slices.DeleteFunc(got, func(g group) bool {
			return !slices.ContainsFunc(want, func(w group) bool { return w.name == g.name })
		})
		for i, w := range want {
			if i >= len(got) || got[i].name != w.name || w.versions != nil && !slices.Equal(got[i].versions, w.versions) {
				t.Fatalf("%s, place %d: want %v, in %v", what, i, w, got)
			}
		}
	}
	var list metav1.APIGroupList
	if err := json.Unmarshal(get(h, "/apis").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	var got []group
	for _, g := range list.Groups {
		one := group{name: g.Name}
		for _, v := range g.Versions {
			one.versions = append(one.versions, v.Version)
		}
		if g.PreferredVersion != g.Versions[0] {
			t.Errorf("%s prefers %v", g.Name, g.PreferredVersion)
		}
		var single metav1.APIGroup
		if err := json.Unmarshal(get(h, "/apis/"+g.Name).Body.Bytes(), &single); err != nil || !slices.Equal(single.Versions, g.Versions) {
			t.Errorf("%s alone has %v, in the list %v: %v", g.Name, single.Versions, g.Versions, err)
		}
		got = append(got, one)
	}
	check("the list", got, slices.Concat(head, middle, byService, tail)...)
	var doc apidiscovery.APIGroupDiscoveryList
	if err := json.Unmarshal(get(h, "/apis", "Accept", aggregatedType).Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	got = nil
	for _, g := range doc.Items {
		one := group{name: g.Name}
		for _, v := range g.Versions {
			one.versions = append(one.versions, v.Version)
		}
		got = append(got, one)
	}
	check("the aggregated document", got, slices.Concat(head, middle, byName, tail)...)
}
