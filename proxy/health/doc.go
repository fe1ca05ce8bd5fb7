// Package health answers those who ask whether this node should get traffic: load
// balancers, at the health-check node port of each Service that has one, about the
// endpoints of this node; and whoever looks after the proxy itself, about that.
//
// Paths, bodies, header and codes are those of kube-proxy, so that load balancers and
// monitoring need not know the difference.
package health
