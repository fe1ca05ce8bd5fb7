package cluster

import (
	"encoding/json"
	"net/http"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/cluster/snapshots"
	"github.com/sampan-io/sampan/store/snapshot"
)

// ownPaths returns the handlers of the API server's paths that only Sampan has.
func (c *cluster) ownPaths(p *controlPlane) map[string]http.Handler {
	return map[string]http.Handler{snapshots.Path: c.snapshots(p)}
}

// snapshots returns the maker of snapshots of the cluster.
func (c *cluster) snapshots(p *controlPlane) snapshots.Source {
	return snapshots.Source{
		Freeze: p.store.Freeze,
		Seal:   c.encryption.Seal,
		Info: func() snapshot.Info {
			settings, _ := json.Marshal(c.Settings) // it was read from JSON
			return snapshot.Info{ClusterID: p.id(), Cluster: c.Profile.Name, Version: c.Version, API: KubernetesVersion, Settings: settings}
		},
	}
}

// id returns the ID of the cluster, which is the UID of the namespace kube-system, as other programs have it; "" until
// there is one.
func (p *controlPlane) id() string {
	rec, err := p.store.Get("namespaces/kube-system")
	if err != nil {
		return ""
	}
	v, ok := rec.Value.(interface{ Object() catalog.Object })
	if !ok {
		return ""
	}
	return string(v.Object().GetUID())
}
