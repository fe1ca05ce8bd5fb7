package aggregation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/sorting"
)

// Contents is the contents of a namespace at other servers.
type Contents struct {
	Left   map[schema.GroupResource][]metav1.PartialObjectMetadata // of each resource, at most largestPage
	Errors []error
	Stale  []schema.GroupVersion // versions of which the resources are not known now; sorted
}

// largestPage is how many objects are read of one resource.
const largestPage = 500

// Empty asks the other servers, as a user, to delete all objects in a namespace, and returns the rest. It asks for all
// versions at the same time. A server that does not answer is asked once, so that it does not delay the deletion of other
// namespaces for long.
func (a *Aggregator) Empty(ctx context.Context, user *auth.User, namespace string) Contents {
	c := Contents{Left: map[schema.GroupResource][]metav1.PartialObjectMetadata{}}
	var mu sync.Mutex // guards c
	g := run.NewGroup(ctx, 0)
	for _, v := range a.Remote().Versions() {
		s := a.Of(v.GroupVersion)
		if s == nil {
			continue // its APIService has just been deleted
		}
		if v.Document.Freshness != apidiscovery.DiscoveryFreshnessCurrent {
			c.Stale = append(c.Stale, v.GroupVersion)
			continue
		}
		g.Go(func(ctx context.Context) {
			for i := range v.Document.Resources {
				r := &v.Document.Resources[i]
				if r.Scope != apidiscovery.ScopeNamespace || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "delete") {
					continue
				}
				left, err := s.empty(ctx, user, namespace, r)
				mu.Lock()
				if err != nil {
					c.Errors = append(c.Errors, fmt.Errorf("%s.%s: %w", r.Resource, v.Group, err))
				}
				if len(left) > 0 {
					c.Left[schema.GroupResource{Group: v.Group, Resource: r.Resource}] = left
				}
				mu.Unlock()
				if _, answered := errors.AsType[*statusError](err); err != nil && !answered {
					return
				}
			}
		})
	}
	g.Wait()
	sorting.Slice(c.Stale, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	return c
}

// A statusError is an answer that is not the wanted one.
type statusError struct {
	path string
	code int
}

func (e *statusError) Error() string { return fmt.Sprintf("bad status from %s: %d", e.path, e.code) }

// acceptMetadata asks for a list of no more than the metadata of objects.
const acceptMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// empty deletes the objects of one resource.
func (s *Service) empty(ctx context.Context, user *auth.User, namespace string, r *apidiscovery.APIResourceDiscovery) ([]metav1.PartialObjectMetadata, error) {
	address, err := s.choose()
	if err != nil {
		return nil, err
	}
	path := s.root() + "/namespaces/" + namespace + "/" + r.Resource
	list := func() ([]metav1.PartialObjectMetadata, error) {
		got, err := s.ask(ctx, user, http.MethodGet, address, fmt.Sprintf("%s?limit=%d", path, largestPage), http.Header{"Accept": {acceptMetadata}})
		if err != nil {
			return nil, err
		}
		if got.code != http.StatusOK {
			return nil, &statusError{path, got.code}
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
			err = &statusError{path, got.code}
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
