package kubelet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
)

// maxMetrics bounds the metrics of a node: far more than those of a thousand pods.
const maxMetrics = 32 << 20

// ResourceMetrics returns the use of a node, its pods and their containers, in the text format of Prometheus.
func (c *Client) ResourceMetrics(ctx context.Context, node *corev1.Node) ([]byte, error) {
	host, err := c.hostPort(node)
	if err != nil {
		return nil, err
	}
	u := url.URL{Scheme: "https", Host: host, Path: "/metrics/resource"}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.to(node).RoundTrip(r)
	if err != nil {
		return nil, unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("node %s answers a request for its metrics with %s", node.Name, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxMetrics+1))
	if err != nil {
		return nil, unreachable(err)
	}
	if len(body) > maxMetrics {
		return nil, fmt.Errorf("the metrics of node %s are longer than %d bytes", node.Name, maxMetrics)
	}
	return body, nil
}
