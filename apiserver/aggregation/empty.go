package aggregation

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/internal/sorting"
)

// Contents is what a namespace has at other servers.
type Contents struct {
	Left   map[schema.GroupResource][]metav1.PartialObjectMetadata // of each resource, at most largestPage
	Errors []error
	Stale  []schema.GroupVersion // versions of which the resources are not known now; sorted
}

// largestPage is how many objects are read of one resource.
const largestPage = 500

// Empty asks the other servers, as a user, to delete all objects in a namespace, and returns what is left then.
func (a *Aggregator) Empty(ctx context.Context, user *auth.User, namespace string) Contents {
	c := Contents{Left: map[schema.GroupResource][]metav1.PartialObjectMetadata{}}
	for _, v := range a.Remote().Versions() {
		s := a.Of(v.GroupVersion)
		if s == nil {
			continue // its APIService has just been deleted
		}
		if v.Document.Freshness != apidiscovery.DiscoveryFreshnessCurrent {
			c.Stale = append(c.Stale, v.GroupVersion)
			continue
		}
		for i := range v.Document.Resources {
			r := &v.Document.Resources[i]
			if r.Scope != apidiscovery.ScopeNamespace || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "delete") {
				continue
			}
			left, err := s.empty(ctx, user, namespace, r)
			if err != nil {
				c.Errors = append(c.Errors, fmt.Errorf("%s.%s: %w", r.Resource, v.Group, err))
			}
			if len(left) > 0 {
				c.Left[schema.GroupResource{Group: v.Group, Resource: r.Resource}] = left
			}
		}
	}
	sorting.Slice(c.Stale, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	return c
}

// empty deletes the objects of one resource.
func (s *Service) empty(ctx context.Context, user *auth.User, namespace string, r *apidiscovery.APIResourceDiscovery) ([]metav1.PartialObjectMetadata, error) {
	address, err := s.choose()
	if err != nil {
		return nil, err
	}
	path := s.root() + "/namespaces/" + namespace + "/" + r.Resource
	list := func() ([]metav1.PartialObjectMetadata, error) {
		got, err := s.ask(ctx, user, http.MethodGet, address, fmt.Sprintf("%s?limit=%d", path, largestPage), http.Header{"Accept": {"application/json"}})
		if err != nil {
			return nil, err
		}
		if got.code != http.StatusOK {
			return nil, fmt.Errorf("bad status from %s: %d", path, got.code)
		}
		var found metav1.PartialObjectMetadataList
		err = decode(got.body, &found)
		return found.Items, err
	}
	items, err := list()
	if err != nil || len(items) == 0 {
		return nil, err
	}
	remove := func(path string) error {
		got, err := s.ask(ctx, user, http.MethodDelete, address, path+"?propagationPolicy=Background", http.Header{"Accept": {"application/json"}})
		if err == nil && (got.code < 200 || got.code > 299) && got.code != http.StatusNotFound {
			err = fmt.Errorf("bad status from %s: %d", path, got.code)
		}
		return err
	}
	if slices.Contains(r.Verbs, "deletecollection") {
		err = remove(path)
	} else {
		for i := range items {
			if name := items[i].Name; err == nil && named(name) && items[i].DeletionTimestamp == nil {
				err = remove(path + "/" + name)
			}
		}
	}
	if err != nil {
		return items, err
	}
	return list()
}
