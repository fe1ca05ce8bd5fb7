// Package health serves health checks of the node and the proxy over HTTP. At the health-check node
// port of a Service it reports to load balancers whether this node has endpoints of it; at /healthz
// and /livez it reports whether the proxy works.
//
// Paths, bodies, headers and status codes are those of kube-proxy, so that load balancers and
// monitoring need no changes.
package health
