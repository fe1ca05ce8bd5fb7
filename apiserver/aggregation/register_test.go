package aggregation

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	registrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/apiregistration"
	"github.com/sampan-io/sampan/catalog/kinds"
	"github.com/sampan-io/sampan/internal/hangtest"
)

func snapshot(t *testing.T) *catalog.Snapshot {
	t.Helper()
	c, err := catalog.New(kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	return c.Snapshot()
}

func TestWantedHasUpstreamsPriorities(t *testing.T) {
	now := snapshot(t)
	base := baseOf(now)
	delete(base, schema.GroupVersion{Group: "batch", Version: "v1"}) // as if it were that of a custom resource
	all := wanted(base, now)
	for name, want := range map[string]struct {
		priority
		managed string
	}{
		"v1.": {priority{18000, 1}, "onstart"}, "v1.apps": {priority{17800, 15}, "onstart"}, "v2.autoscaling": {priority{17500, 30}, "onstart"},
		"v1.autoscaling": {priority{17500, 15}, "onstart"}, "v1.resource.k8s.io": {priority{16200, 21}, "onstart"},
		"v1.flowcontrol.apiserver.k8s.io": {priority{16100, 21}, "onstart"}, "v1.batch": {priority{1000, 100}, "true"},
	} {
		s := all[name]
		if s == nil {
			t.Errorf("no %s", name)
			continue
		}
		if s.Spec.GroupPriorityMinimum != want.group || s.Spec.VersionPriority != want.version || s.Labels[managedLabel] != want.managed || s.Spec.Service != nil {
			t.Errorf("%s: %+v %v, want %+v", name, s.Spec, s.Labels, want)
		}
	}
	for name := range all {
		if strings.HasSuffix(name, ".metrics.k8s.io") || strings.HasSuffix(name, ".apiregistration.k8s.io") {
			t.Errorf("%s is registered", name)
		}
	}
}

// entry returns an APIService of x.example.com.
func entry(managed, service string) *registrationv1.APIService {
	s := &registrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.x.example.com"},
		Spec:       registrationv1.APIServiceSpec{Group: "x.example.com", Version: "v1", GroupPriorityMinimum: 1000, VersionPriority: 100},
	}
	if managed != "" {
		s.Labels = map[string]string{managedLabel: managed}
	}
	if service != "" {
		s.Spec.Service = &registrationv1.ServiceReference{Namespace: "default", Name: service, Port: new(int32(443))}
	} else {
		s.Status.Conditions = []registrationv1.APIServiceCondition{apiregistration.Local()}
	}
	return s
}

func TestChanges(t *testing.T) {
	stale := entry("", "")
	stale.Status.Conditions[0].Status = registrationv1.ConditionFalse
	for name, c := range map[string]struct {
		want, have *registrationv1.APIService
		what       string
	}{
		"missing":                          {entry("true", ""), nil, "create"},
		"equal":                            {entry("true", ""), entry("true", ""), ""},
		"custom, changed":                  {entry("true", ""), entry("true", "a"), "update"},
		"custom, the user's":               {entry("true", ""), entry("", "a"), ""},
		"built in, taken":                  {entry("onstart", ""), entry("", "a"), "update"},
		"built in, without label":          {entry("onstart", ""), entry("", ""), "update"},
		"not served any more":              {nil, entry("true", ""), "remove"},
		"the user's":                       {nil, entry("", "a"), ""},
		"the user's, local, without state": {nil, stale, "status"},
	} {
		want, have := map[string]*registrationv1.APIService{}, map[string]*registrationv1.APIService{}
		if c.want != nil {
			want[c.want.Name] = c.want
		}
		if c.have != nil {
			have[c.have.Name] = c.have
		}
		var what []string
		for _, c := range changes(want, have) {
			for word, o := range map[string]*registrationv1.APIService{"create": c.create, "update": c.update, "status": c.status, "remove": c.remove} {
				if o != nil {
					what = append(what, word)
				}
			}
			if c.update != nil && (c.update.Spec.Service != nil || c.update.Labels[managedLabel] != want[c.update.Name].Labels[managedLabel]) {
				t.Errorf("%s: updated to %+v", name, c.update)
			}
		}
		if got := strings.Join(what, " "); got != c.what {
			t.Errorf("%s: %q, want %q", name, got, c.what)
		}
	}
}

func TestLocate(t *testing.T) {
	ref := &registrationv1.ServiceReference{Namespace: "n", Name: "s", Port: new(int32(443))}
	svc := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}, IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol}}}
	slice := func(family discoveryv1.AddressType, port string, ready *bool, addresses ...string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			AddressType: family, Ports: []discoveryv1.EndpointPort{{}, {Name: &port, Port: new(int32(8443))}, {Name: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: addresses, Conditions: discoveryv1.EndpointConditions{Ready: ready}}},
		}
	}
	four := slice("IPv4", "https", nil, "192.0.2.1")
	for name, c := range map[string]struct {
		svc    *corev1.Service
		slices []*discoveryv1.EndpointSlice
		want   string
	}{
		"no service":         {nil, nil, "ServiceNotFound"},
		"other port":         {&corev1.Service{}, nil, "ServicePortError"},
		"no slices":          {svc, nil, "EndpointsNotFound"},
		"not ready":          {svc, []*discoveryv1.EndpointSlice{slice("IPv6", "https", new(false), "2001:db8::1")}, "MissingEndpoints"},
		"no address":         {svc, []*discoveryv1.EndpointSlice{slice("IPv6", "https", nil)}, "MissingEndpoints"},
		"other name":         {svc, []*discoveryv1.EndpointSlice{slice("IPv6", "http", nil, "2001:db8::1")}, "MissingEndpoints"},
		"other family":       {svc, []*discoveryv1.EndpointSlice{four}, "192.0.2.1:8443"},
		"preferred family":   {svc, []*discoveryv1.EndpointSlice{four, slice("IPv6", "https", nil, "2001:db8::1")}, "[2001:db8::1]:8443"},
		"a name of another":  {&corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "api.example.com"}}, nil, "api.example.com:443"},
		"the same one twice": {svc, []*discoveryv1.EndpointSlice{four, four}, "192.0.2.1:8443"},
	} {
		at := locate(ref, c.svc, c.slices)
		if got := at.reason + strings.Join(at.addresses, ","); got != c.want {
			t.Errorf("%s: %s (%s), want %s", name, got, at.message, c.want)
		}
	}
}

func TestDocumentsOfOthers(t *testing.T) {
	gv := schema.GroupVersion{Group: "g.example.com", Version: "v1"}
	list := `{"kind":"APIResourceList","resources":[{"name":"b","kind":"B","namespaced":true,"verbs":["get"]},{"name":"b/c","kind":"C","group":"o","version":"v2"},{"name":"x/y"},{"name":"../z"},{"name":""}]}`
	d, err := parseList([]byte(list), gv)
	if err != nil || len(d.Resources) != 1 || d.Resources[0].Scope != "Namespaced" || len(d.Resources[0].Subresources) != 1 || d.Resources[0].Subresources[0].ResponseKind.Group != "o" {
		t.Errorf("%+v, %v", d, err)
	}
	d, err = parseAggregated([]byte(`{"items":[{"metadata":{"name":"other"},"versions":[{"version":"v1","resources":[{"resource":"no"}]}]},{"metadata":{"name":"g.example.com"},"versions":[{"version":"v1","resources":[{"resource":"a","subresources":[{"subresource":"s"},{"subresource":"/"}]},{"resource":"a/b"}]}]}]}`), gv)
	if err != nil || len(d.Resources) != 1 || d.Resources[0].ResponseKind == nil || len(d.Resources[0].Subresources) != 1 || d.Resources[0].Scope != "Cluster" {
		t.Errorf("%+v, %v", d, err)
	}
	for _, bad := range []string{"", "null", "[]", `"x"`, "{", `{"kind":"Status"}`, `{"kind":1}`, strings.Repeat(`{"resources":[`, 20000)} {
		if _, err := parseList([]byte(bad), gv); err == nil {
			t.Errorf("%.20q is accepted", bad)
		}
	}
	for index, want := range map[string]string{
		`{"paths":{"apis/g.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/g.example.com/v1?hash=A"}}}`: "/openapi/v3/apis/g.example.com/v1?hash=A",
		`{"paths":{"apis/g.example.com/v1":{"serverRelativeURL":"https://evil.example.com/"}}}`:                "",
		`{"paths":{"apis/g.example.com/v1":{"serverRelativeURL":"/api/v1/secrets"}}}`:                          "",
		`{}`: "",
	} {
		if got, err := parseOpenAPI([]byte(index), gv); err != nil || got != want {
			t.Errorf("%s: %q, %v", index, got, err)
		}
	}
}

func FuzzDocuments(f *testing.F) {
	gv := schema.GroupVersion{Group: "g.example.com", Version: "v1"}
	f.Add([]byte(`{"kind":"APIResourceList","resources":[{"name":"b"},null,{"name":"b/c"}]}`))
	f.Add([]byte(`{"items":[{"versions":[{"resources":[{"subresources":[null]}]}]}],"paths":{"a":null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer hangtest.Guard(t)()
		_, _ = parseList(data, gv)
		_, _ = parseAggregated(data, gv)
		_, _ = parseOpenAPI(data, gv)
	})
}
