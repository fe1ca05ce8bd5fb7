package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A Prober probes a container once, until ctx is cancelled: the container with this ID in
// the runtime, in the pod with this address. It returns nil if the probe succeeds, and
// otherwise an error with the text of Kubernetes' Unhealthy events.
type Prober interface {
	Probe(ctx context.Context, p *corev1.Probe, c *corev1.Container, id, ip string) error
}

// Network runs HTTP and TCP probes.
type Network struct{}

// maxRedirects and maxBody bound what a container can make the agent do.
const (
	maxRedirects = 10
	maxBody      = 10 << 10
)

// Probe implements [Prober].
func (Network) Probe(ctx context.Context, p *corev1.Probe, c *corev1.Container, _, ip string) error {
	switch {
	case p.HTTPGet != nil:
		return get(ctx, c, ip, p.HTTPGet)
	case p.TCPSocket != nil:
		return connect(ctx, c, ip, p.TCPSocket)
	}
	return errors.New("unsupported probe: want httpGet or tcpSocket")
}

func connect(ctx context.Context, c *corev1.Container, ip string, a *corev1.TCPSocketAction) error {
	port, err := Port(a.Port, c)
	if err != nil {
		return err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(or(a.Host, ip), strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return conn.Close()
}

func get(ctx context.Context, c *corev1.Container, ip string, a *corev1.HTTPGetAction) error {
	port, err := Port(a.Port, c)
	if err != nil {
		return err
	}
	// A path may carry a query.
	u, err := url.Parse(a.Path)
	if err != nil {
		u = &url.URL{Path: a.Path}
	}
	u.Scheme, u.Host = strings.ToLower(string(a.Scheme)), net.JoinHostPort(or(a.Host, ip), strconv.Itoa(port))
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	if !strings.HasPrefix(u.Path, "/") {
		u.Path = "/" + u.Path
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "kube-probe/1.37")
	req.Header.Set("Accept", "*/*")
	for _, h := range a.HTTPHeaders {
		if strings.EqualFold(h.Name, "Host") {
			req.Host = h.Value
		} else {
			req.Header.Add(h.Name, h.Value)
		}
	}
	// One connection per probe, never a proxy, and no verification of certificates: the
	// container's certificate has no authority that the agent could trust.
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) >= maxRedirects {
			return fmt.Errorf("stopped after %d redirects", maxRedirects)
		}
		if r.URL.Hostname() != via[0].URL.Hostname() {
			return http.ErrUseLastResponse // another host says nothing about this container
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody))
	if resp.StatusCode >= http.StatusOK && resp.StatusCode < http.StatusBadRequest {
		return nil
	}
	return fmt.Errorf("HTTP probe failed with statuscode: %d", resp.StatusCode)
}

// Port returns the number of a port that is given as a number or by the name that
// the container gives it.
func Port(p intstr.IntOrString, c *corev1.Container) (int, error) {
	n := p.IntValue()
	if p.Type == intstr.String {
		for _, cp := range c.Ports {
			if cp.Name == p.StrVal {
				n = int(cp.ContainerPort)
			}
		}
	}
	if n <= 0 || n > 65535 {
		return 0, fmt.Errorf("invalid port number: %v", p.String())
	}
	return n, nil
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
