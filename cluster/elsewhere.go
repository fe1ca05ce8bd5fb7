package cluster

import (
	"context"

	"github.com/sampan-io/sampan/apiserver/aggregation"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller/namespaces"
)

// elsewhere is what namespaces have at other servers, for the controller that deletes it.
type elsewhere struct{ aggregator *aggregation.Aggregator }

// Empty implements [namespaces.Others].
func (e elsewhere) Empty(ctx context.Context, namespace string) (map[string][]client.Object, []error) {
	user := accountUser("namespace-controller")
	c := e.aggregator.Empty(ctx, &user, namespace)
	left := map[string][]client.Object{}
	for resource, items := range c.Left {
		for i := range items {
			left[resource.String()] = append(left[resource.String()], &items[i])
		}
	}
	if len(c.Stale) > 0 {
		err := &namespaces.DiscoveryError{}
		for _, gv := range c.Stale {
			err.Versions = append(err.Versions, gv.String())
		}
		c.Errors = append(c.Errors, err)
	}
	return left, c.Errors
}
