package standalone

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
)

// pages are the documents of a server.
type pages map[string]any

func (p pages) Do(_ context.Context, r client.RawRequest) (*http.Response, error) {
	doc, ok := p[r.Path]
	if !ok {
		return nil, fmt.Errorf("no %s", r.Path)
	}
	data, err := json.Marshal(doc)
	return &http.Response{Body: io.NopCloser(bytes.NewReader(data))}, err
}

func groups(all ...discoveryv2.APIGroupDiscovery) *discoveryv2.APIGroupDiscoveryList {
	return &discoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}, Items: all}
}

func group(name string, versions ...discoveryv2.APIVersionDiscovery) discoveryv2.APIGroupDiscovery {
	return discoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}, Versions: versions}
}

func version(name string, resources ...string) discoveryv2.APIVersionDiscovery {
	v := discoveryv2.APIVersionDiscovery{Version: name, Freshness: discoveryv2.DiscoveryFreshnessCurrent}
	for _, text := range resources {
		resource, verbs, _ := strings.Cut(text, ":")
		v.Resources = append(v.Resources, discoveryv2.APIResourceDiscovery{
			Resource: resource, Scope: discoveryv2.ScopeNamespace, Verbs: strings.Fields(verbs),
			ResponseKind: &metav1.GroupVersionKind{Kind: strings.ToUpper(resource[:1]) + resource[1:len(resource)-1]},
		})
	}
	return v
}

const full = ":get list watch delete"

func names[R interface {
	GroupVersion() schema.GroupVersion
	GroupResource() schema.GroupResource
}](all []R) string {
	var text []string
	for _, r := range all {
		text = append(text, r.GroupVersion().Version+"/"+r.GroupResource().String())
	}
	slices.Sort(text)
	return strings.Join(text, " ")
}

func TestDiscoveryPrefersTheFirstVersion(t *testing.T) {
	all, err := discover(t.Context(), pages{
		"/api": groups(group("", version("v1", "pods"+full, "bindings:create"))),
		"/apis": groups(
			group("example.com", version("v2", "boats"+full), version("v1", "boats"+full, "oars"+full)),
			group("events.k8s.io", version("v1", "events"+full)),
		),
	})
	if err != nil {
		t.Fatal(err)
	}
	var followed []client.Resource[client.Object]
	for _, r := range all.resources {
		if r.followed() {
			followed = append(followed, r.Resource)
		}
	}
	if got := names(followed); got != "v1/oars.example.com v1/pods v2/boats.example.com" {
		t.Errorf("followed are %s", got)
	}
}

func TestDiscoveryNeedsTheAggregatedForm(t *testing.T) {
	_, err := discover(t.Context(), pages{"/api": metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}}})
	if !errors.Is(err, errTooOld) {
		t.Errorf("discover = %v", err)
	}
}

func TestCatalogKeepsWhatIsNotKnownNow(t *testing.T) {
	server := pages{"/api": groups(group("", version("v1", "pods"+full)))}
	c := &catalog{server: server, changed: make(chan struct{}), own: []client.Resource[client.Object]{{
		GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
	}}}
	stale := discoveryv2.APIVersionDiscovery{Version: "v1", Freshness: discoveryv2.DiscoveryFreshnessStale}
	for _, step := range []struct {
		now     *discoveryv2.APIGroupDiscoveryList
		want    string
		changes bool
	}{
		{groups(), "", false},
		{groups(group("a.io", version("v1", "whales"+full)), group("b.io", version("v1", "boats"+full))), "v1/boats.b.io v1/whales.a.io", true},
		{groups(group("b.io", version("v1", "boats"+full)), group("a.io", version("v1", "whales"+full))), "v1/boats.b.io v1/whales.a.io", false},
		{groups(group("a.io", stale), group("b.io", version("v1", "boats"+full))), "v1/boats.b.io v1/whales.a.io", false},
		{groups(group("a.io", version("v1", "whales"+full))), "v1/whales.a.io", true},
		{groups(), "", true},
	} {
		server["/apis"] = step.now
		_, changed := c.Served()
		if _, err := c.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		now, _ := c.Served()
		if got := names(now); got != step.want {
			t.Errorf("served are %q, want %q", got, step.want)
		}
		select {
		case <-changed:
			if !step.changes {
				t.Errorf("a change to %s was reported", step.want)
			}
		default:
			if step.changes {
				t.Errorf("the change to %s was not reported", step.want)
			}
		}
	}
}

func defined(established, version string, served bool) *definition {
	d := &definition{}
	text := fmt.Sprintf(`{"spec":{"group":"b.io","versions":[{"name":%q,"served":%t}]},
		"status":{"conditions":[{"type":"Established","status":%q,"reason":"any"}],"acceptedNames":{"plural":"boats","kind":"Boat"}}}`, version, served, established)
	if err := json.Unmarshal([]byte(text), d); err != nil {
		panic(err)
	}
	return d
}

func TestDiscoveryAgreesWithDefinitions(t *testing.T) {
	known := map[schema.GroupResource]bool{}
	with, without := &discovered{}, &discovered{}
	boats := group("b.io", version("v1", "boats"+full))
	with.add(&boats)
	for i, tt := range []struct {
		all     *discovered
		defined []*definition
		want    bool
	}{
		{without, nil, true},
		{without, []*definition{defined("False", "v1", true)}, true},
		{without, []*definition{defined("True", "v1", true)}, false}, // it is not published yet
		{with, []*definition{defined("True", "v1", true)}, true},
		{with, []*definition{defined("True", "v2", true)}, false},
		{with, []*definition{defined("True", "v1", false)}, false},
		{without, []*definition{defined("True", "v1", false)}, true},
		{with, nil, false}, // it is still published
		{without, nil, true},
		{with, nil, true}, // that of another server
	} {
		if got := tt.all.agrees(tt.defined, known); got != tt.want {
			t.Errorf("%d: discovery agrees: %t, want %t", i, got, tt.want)
		}
	}
}

func TestElectionIsChecked(t *testing.T) {
	for _, tt := range []struct {
		change func(*Election)
		want   string
	}{
		{func(*Election) {}, ""},
		{func(e *Election) { e.LeaseDuration = e.RenewDeadline }, "--leader-elect-lease-duration=10s: must be greater than --leader-elect-renew-deadline=10s"},
		{func(e *Election) { e.RenewDeadline = e.RetryPeriod }, "--leader-elect-renew-deadline=2s: must be greater than --leader-elect-retry-period=2s with jitter"},
		{func(e *Election) {
			e.LeaseDuration, e.RenewDeadline, e.RetryPeriod = 500*time.Millisecond, 400*time.Millisecond, time.Millisecond
		}, "must be >= 1s"},
		{func(e *Election) { e.RetryPeriod = 0 }, "--leader-elect-retry-period=0s: must be > 0"},
		{func(e *Election) { e.Name = "" }, "must not be empty"},
	} {
		e := DefaultElection()
		tt.change(&e)
		if err := e.Check(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Check = %v, want %q", err, tt.want)
		}
	}
}
