package kubelet_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/kubelet"
	"github.com/sampan-io/sampan/catalog"
)

// nodes is a store that holds nodes.
type nodes map[string]*corev1.Node

func (n nodes) Get(_ context.Context, gvr schema.GroupVersionResource, _, name string) (catalog.Object, error) {
	if node := n[name]; node != nil {
		return node, nil
	}
	return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
}

// fixture is an API server in front of a node whose kubelet is serve.
type fixture struct {
	front *httptest.Server
	node  *corev1.Node
}

func newFixture(t *testing.T, serve http.HandlerFunc, pod *corev1.Pod) *fixture {
	t.Helper()
	back := httptest.NewTLSServer(serve)
	t.Cleanup(back.Close)
	f := &fixture{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}
	host, port, err := net.SplitHostPort(back.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	f.node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "unresolvable.invalid"}, {Type: corev1.NodeInternalIP, Address: host}}
	f.node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(n)
	roots := back.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	c, err := kubelet.New(kubelet.Options{TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, Objects: nodes{"n1": f.node}})
	if err != nil {
		t.Fatal(err)
	}
	f.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.ServeLogs(w, r, pod)
	}))
	t.Cleanup(f.front.Close)
	return f
}

func (f *fixture) get(t *testing.T, path string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.front.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := f.front.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func podOf(node string, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: "p"}, Spec: corev1.PodSpec{NodeName: node}}
	for _, c := range containers {
		if init, ok := strings.CutPrefix(c, "init:"); ok {
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: init})
			continue
		}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
	}
	return p
}

func message(t *testing.T, body string) string {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal([]byte(body), &s); err != nil || s.Kind != "Status" {
		t.Fatalf("not a status: %s", body)
	}
	return s.Message
}

func TestLogs(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s?%s", r.URL.Path, r.URL.RawQuery) }
	annotated := podOf("n1", "a", "b")
	annotated.Annotations = map[string]string{"kubectl.kubernetes.io/default-container": "b"}
	since := url.QueryEscape("2026-01-31T15:04:05+01:00")
	tests := []struct {
		name  string
		pod   *corev1.Pod
		query string
		serve http.HandlerFunc
		code  int
		want  string // of the body, or of the message of a status
	}{
		{"one container", podOf("n1", "a"), "", echo, 200, "/containerLogs/ship/p/a?"},
		{"a container by name", podOf("n1", "a", "b"), "container=b", echo, 200, "/containerLogs/ship/p/b?"},
		{"an init container", podOf("n1", "init:i", "a"), "container=i", echo, 200, "/containerLogs/ship/p/i?"},
		{"the default container", annotated, "", echo, 200, "/containerLogs/ship/p/b?"},
		{"all options", podOf("n1", "a"), "follow=true&previous=1&timestamps=&tailLines=0&limitBytes=5&sinceSeconds=7", echo, 200, "/containerLogs/ship/p/a?follow=true&limitBytes=5&previous=true&sinceSeconds=7&tailLines=0&timestamps=true"},
		{"since a time", podOf("n1", "a"), "follow=false&sinceTime=" + since, echo, 200, "/containerLogs/ship/p/a?sinceTime=" + since},
		{"only errors", podOf("n1", "a"), "stream=Stderr", echo, 200, "/containerLogs/ship/p/a?stream=Stderr"},
		{"which container", podOf("n1", "init:i", "a", "b"), "", echo, 400, "a container name must be specified for pod p, choose one of: [i a b]"},
		{"no such container", podOf("n1", "a"), "container=x", echo, 400, "container x is not valid for pod p"},
		{"everything wrong", podOf("n1", "a"), "tailLines=-1&limitBytes=0&sinceSeconds=x", echo, 422, `PodLogOptions "p" is invalid: [tailLines: Invalid value: -1: must be greater than or equal to 0, limitBytes: Invalid value: 0: must be greater than 0, sinceSeconds: Invalid value: "x": must be a whole number]`},
		{"on no node yet", podOf("", "a"), "", echo, 204, ""},
		{"on a node that has gone", podOf("n9", "a"), "", echo, 404, `nodes "n9" not found`},
		{"not started", podOf("n1", "a"), "", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `container "a" in pod "p" is waiting to start: ContainerCreating`, http.StatusBadRequest)
		}, 400, `container "a" in pod "p" is waiting to start: ContainerCreating`},
		{"broken", podOf("n1", "a"), "", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "disk on fire", http.StatusInternalServerError)
		}, 500, "Internal error occurred: disk on fire"},
		{"gone from the node", podOf("n1", "a"), "", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `pod "p" not found`, http.StatusNotFound)
		}, 404, `pod "p" not found`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := newFixture(t, tt.serve, tt.pod).get(t, "/log?"+tt.query)
			if resp.StatusCode >= 400 {
				body = message(t, body)
			}
			if resp.StatusCode != tt.code || body != tt.want {
				t.Errorf("%d %s, want %d %s", resp.StatusCode, body, tt.code, tt.want)
			}
			if tt.code == 200 && resp.Header.Get("Content-Type") != "text/plain" {
				t.Errorf("Content-Type = %q", resp.Header.Get("Content-Type"))
			}
		})
	}
}

// TestFollowedLogsComeAtOnce has a container that writes a line, and the next
// only when the reader has the one before.
func TestFollowedLogsComeAtOnce(t *testing.T) {
	next, gone := make(chan struct{}), make(chan struct{})
	f := newFixture(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		for i := 0; ; i++ {
			fmt.Fprintf(w, "line %d\n", i)
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	}, podOf("n1", "a"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.front.URL+"/log?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := f.front.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 {
		if !lines.Scan() || lines.Text() != fmt.Sprint("line ", i) {
			t.Fatalf("read %q, %v, want line %d", lines.Text(), lines.Err(), i)
		}
		if i < 2 {
			next <- struct{}{}
		}
	}
	cancel() // the reader goes, and so must the request to the node
	<-gone
}

// TestACutLogIsNotAWholeOne checks that the reader of a log sees that the node broke off.
func TestACutLogIsNotAWholeOne(t *testing.T) {
	f := newFixture(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "half a")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}, podOf("n1", "a"))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.front.URL+"/log", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := f.front.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("read %q to a clean end", body)
	}
}

func TestANodeThatCannotBeReached(t *testing.T) {
	serve := func(http.ResponseWriter, *http.Request) { t.Error("the request arrived") }
	tests := []struct {
		name   string
		change func(*corev1.Node)
		want   string
	}{
		{"nobody listens", func(n *corev1.Node) { n.Status.DaemonEndpoints.KubeletEndpoint.Port = 1 }, "error trying to reach service: dial tcp 127.0.0.1:1: connect: connection refused"},
		{"without an address", func(n *corev1.Node) { n.Status.Addresses = nil }, `node "n1" has no address at which its kubelet can be reached; known addresses: []`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, serve, podOf("n1", "a"))
			tt.change(f.node)
			resp, body := f.get(t, "/log")
			if got := message(t, body); resp.StatusCode != http.StatusServiceUnavailable || got != tt.want {
				t.Errorf("%d %s, want 503 %s", resp.StatusCode, got, tt.want)
			}
		})
	}
	t.Run("a node without a kubelet", func(t *testing.T) {
		f := newFixture(t, serve, podOf("n1", "a"))
		c, err := kubelet.New(kubelet.Options{TLS: &tls.Config{MinVersion: tls.VersionTLS13}, Objects: nodes{"n1": f.node}, Absent: func(n *corev1.Node) bool { return n.Name == "n1" }})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		c.ServeLogs(w, httptest.NewRequest(http.MethodGet, "/log", nil), podOf("n1", "a"))
		if got := message(t, w.Body.String()); w.Code != http.StatusServiceUnavailable || !strings.HasPrefix(got, `node "n1" is simulated without a kubelet`) {
			t.Errorf("%d %s", w.Code, got)
		}
		if _, _, _, _, err := c.Reach(f.node); err == nil {
			t.Error("the node can be reached")
		}
	})
	// A node with a certificate from another authority is refused.
	t.Run("an impostor", func(t *testing.T) {
		f := newFixture(t, serve, podOf("n1", "a"))
		c, err := kubelet.New(kubelet.Options{TLS: &tls.Config{MinVersion: tls.VersionTLS13}, Objects: nodes{"n1": f.node}})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		c.ServeLogs(w, httptest.NewRequest(http.MethodGet, "/log", nil), podOf("n1", "a"))
		if got := message(t, w.Body.String()); w.Code != http.StatusServiceUnavailable || !strings.Contains(got, "certificate") {
			t.Errorf("%d %s", w.Code, got)
		}
	})
}

// TestLogsWithoutVerification asks for a log with insecureSkipTLSVerifyBackend of a kubelet with an unknown
// certificate.
func TestLogsWithoutVerification(t *testing.T) {
	f := newFixture(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.RequestURI()) }, podOf("n1", "a"))
	c, err := kubelet.New(kubelet.Options{
		TLS: &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}, Objects: nodes{"n1": f.node},
		ServerName: func(n *corev1.Node) string { return n.Name },
	})
	if err != nil {
		t.Fatal(err)
	}
	for query, code := range map[string]int{
		"insecureSkipTLSVerifyBackend=true":  http.StatusOK,
		"insecureSkipTLSVerifyBackend=false": http.StatusServiceUnavailable,
		"":                                   http.StatusServiceUnavailable,
	} {
		w := httptest.NewRecorder()
		c.ServeLogs(w, httptest.NewRequest(http.MethodGet, "/log?"+query, nil), podOf("n1", "a"))
		if w.Code != code || code == http.StatusOK && w.Body.String() != "/containerLogs/ship/p/a" {
			t.Errorf("%q: %d %s, want %d", query, w.Code, w.Body, code)
		}
	}
}

// selfSigned is a certificate like that which upstream's kubelet makes for itself: for the name of its host, and for no
// address.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "n1@1767225600"}, DNSNames: []string{"n1"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: key}
}

func TestForeignKubeletIsReachedWithoutVerification(t *testing.T) {
	back := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }))
	back.TLS = &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}, MinVersion: tls.VersionTLS12}
	back.Config.ErrorLog = log.New(io.Discard, "", 0)
	back.StartTLS()
	t.Cleanup(back.Close)
	at := netip.MustParseAddrPort(back.Listener.Addr().String())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: at.Addr().String()}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(at.Port())
	c, err := kubelet.New(kubelet.Options{
		TLS: &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}, Objects: nodes{"n1": node},
		Foreign: func(n *corev1.Node) bool { return n.Status.NodeInfo.KubeletVersion == "v1.37.2" },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		version string
		code    int
		logs    string // of the answer to a request of logs
	}{
		{"v1.37.2", http.StatusOK, "/containerLogs/ship/p/a"},
		{"v1.37.2+own", http.StatusServiceUnavailable, "certificate"},
		{"", http.StatusServiceUnavailable, "certificate"},
	} {
		node.Status.NodeInfo.KubeletVersion = tt.version
		w := httptest.NewRecorder()
		c.ServeLogs(w, httptest.NewRequest(http.MethodGet, "/log", nil), podOf("n1", "a"))
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.logs) {
			t.Errorf("version %q: the log is answered with %d %s", tt.version, w.Code, w.Body)
		}
		host, port, transport, verified, err := c.Reach(node)
		if err != nil || host != at.Addr().String() || port != fmt.Sprint(at.Port()) || verified == (tt.code == http.StatusOK) {
			t.Fatalf("version %q: %s %s %v %v", tt.version, host, port, verified, err)
		}
		r := httptest.NewRequest(http.MethodGet, "https://"+back.Listener.Addr().String()+"/pods", nil)
		resp, err := transport.RoundTrip(r)
		if (err == nil) != (tt.code == http.StatusOK) {
			t.Errorf("version %q: the proxy gets %v", tt.version, err)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
	}
}
