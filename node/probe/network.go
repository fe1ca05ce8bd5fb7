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

	"github.com/sampan-io/sampan/internal/h2"
)

// A Prober probes a container once, until ctx is cancelled: the container with this ID in
// the runtime, in the pod with this address. It returns nil if the probe succeeds, a [*Warning] if it succeeds with a
// remark, an [*Unknown] if it could not be made, and otherwise an error with the text of Kubernetes' Unhealthy events.
type Prober interface {
	Probe(ctx context.Context, p *corev1.Probe, c *corev1.Container, id, ip string) error
}

// A Warning is the remark of a probe that succeeded.
type Warning struct{ Text string }

// Error implements error.
func (w *Warning) Error() string { return w.Text }

// Unknown says that a probe could not be made. It is no result: it counts neither as success nor as failure.
type Unknown struct{ Err error }

// Error implements error.
func (u *Unknown) Error() string { return u.Err.Error() }

// Unwrap implements the interface of package errors.
func (u *Unknown) Unwrap() error { return u.Err }

// Network runs HTTP, TCP and gRPC probes.
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
	case p.GRPC != nil:
		return check(ctx, ip, p.GRPC, Timeout(p))
	}
	return &Unknown{errors.New("unsupported probe: want exec, httpGet, tcpSocket or grpc")}
}

func connect(ctx context.Context, c *corev1.Container, ip string, a *corev1.TCPSocketAction) error {
	port, err := Port(a.Port, c)
	if err != nil {
		return &Unknown{err}
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(or(a.Host, ip), strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return conn.Close()
}

func get(ctx context.Context, c *corev1.Container, ip string, a *corev1.HTTPGetAction) error {
	req, err := Request(ctx, c, ip, a, "probe")
	if err != nil {
		return &Unknown{err}
	}
	client := Client()
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return &Unknown{err}
	}
	if err := ctx.Err(); err != nil {
		return err // the server answered because the client had hung up
	}
	switch {
	case resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusBadRequest:
		return fmt.Errorf("HTTP probe failed with statuscode: %d", resp.StatusCode)
	case resp.StatusCode >= http.StatusMultipleChoices:
		return &Warning{fmt.Sprintf("Probe terminated redirects, Response body: %s", body)}
	}
	return nil
}

// Client returns a client for requests to containers: one connection for each, never a proxy, redirects on the same host
// only, and no verification of certificates, because no authority that the agent could trust has signed them.
func Client() *http.Client {
	transport := h2.Client(&http.Transport{
		DisableKeepAlives: true, DisableCompression: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // see above
	})
	return &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if r.URL.Hostname() != via[0].URL.Hostname() {
			return http.ErrUseLastResponse // another host says nothing about this container
		}
		if len(via) >= maxRedirects {
			return fmt.Errorf("stopped after %d redirects", maxRedirects)
		}
		return nil
	}}
}

// Request returns the request of a probe or hook to a container in the pod with this address. The purpose is part of the
// user agent, as in Kubernetes: "probe" or "lifecycle".
func Request(ctx context.Context, c *corev1.Container, ip string, a *corev1.HTTPGetAction, purpose string) (*http.Request, error) {
	port, err := Port(a.Port, c)
	if err != nil {
		return nil, err
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
		return nil, err
	}
	headers := http.Header{}
	for _, h := range a.HTTPHeaders {
		headers.Add(h.Name, h.Value)
	}
	if _, given := headers["User-Agent"]; !given {
		headers.Set("User-Agent", "kube-"+purpose+"/1.37")
	}
	if _, given := headers["Accept"]; !given {
		headers.Set("Accept", "*/*")
	} else if headers.Get("Accept") == "" {
		headers.Del("Accept")
	}
	req.Header, req.Host = headers, headers.Get("Host")
	headers.Del("Host")
	return req, nil
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
