package webhook_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/webhook"
	"github.com/sampan-io/sampan/catalog"
)

// serve starts an HTTPS server with a certificate for names, and returns it and the certificate in PEM.
func serve(t *testing.T, handler http.HandlerFunc, names ...string) (*httptest.Server, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhook"}, DNSNames: names, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = nil
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}} // the client has the minimum
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestCallByURL(t *testing.T) {
	var paths, protocols, bodies []string
	s, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		paths, protocols, bodies = append(paths, r.URL.String()), append(protocols, r.Proto), append(bodies, string(b))
		_, _ = w.Write([]byte(`{"ok":true}`))
	})
	c, err := webhook.New(webhook.Config{URL: s.URL + "/check", CABundle: ca}, webhook.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour-time.Millisecond)
	defer cancel()
	for range 2 {
		if got, err := c.Call(ctx, []byte(`{"a":1}`), 0); err != nil || string(got) != `{"ok":true}` {
			t.Fatalf("Call: %s, %v", got, err)
		}
	}
	if paths[0] != "/check?timeout=1h0m0s" || protocols[0] != "HTTP/2.0" || bodies[1] != `{"a":1}` {
		t.Errorf("the webhook got %q by %q: %q", paths, protocols, bodies)
	}
}

func TestCallReportsFaults(t *testing.T) {
	quit := make(chan struct{})
	var hits atomic.Int32
	other, _ := serve(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	s, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/empty":
		case "/large":
			zeros := make([]byte, 1<<20)
			for range 1 << 10 {
				if _, err := w.Write(zeros); err != nil {
					return
				}
			}
		case "/redirect":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/text":
			http.Error(w, "broken", http.StatusInternalServerError)
		case "/status":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}`))
		case "/slow":
			for {
				select {
				case <-quit:
					return
				case <-r.Context().Done():
					return
				default:
					_, _ = w.Write([]byte(" "))
					w.(http.Flusher).Flush()
				}
			}
		}
	})
	defer close(quit)
	gone, goneCA := serve(t, func(http.ResponseWriter, *http.Request) {})
	gone.Close()
	for name, c := range map[string]struct {
		config webhook.Config
		most   int64
		want   string
		status int32
	}{
		"an empty answer": {config: webhook.Config{URL: s.URL + "/empty", CABundle: ca}, want: "0-length response with status code: 200"},
		"a gigabyte":      {config: webhook.Config{URL: s.URL + "/large", CABundle: ca}, want: "the response has more than 8388608 bytes"},
		"a lower limit":   {config: webhook.Config{URL: s.URL + "/large", CABundle: ca}, most: 7, want: "the response has more than 7 bytes"},
		"a redirect":      {config: webhook.Config{URL: s.URL + "/redirect", CABundle: ca}, want: "the server responded with the status code 307 but did not return more information", status: 307},
		"an error":        {config: webhook.Config{URL: s.URL + "/text", CABundle: ca}, want: `an error on the server ("broken") has prevented the request from succeeding`, status: 500},
		"a Status":        {config: webhook.Config{URL: s.URL + "/status", CABundle: ca}, want: "no", status: 403},
		"an unknown signer": {
			config: webhook.Config{URL: s.URL + "/empty"},
			want:   "tls: failed to verify certificate: x509: certificate signed by unknown authority",
		},
		"nobody listens": {config: webhook.Config{URL: gone.URL, CABundle: goneCA}, want: `Post "` + gone.URL + `/?timeout=1h0m0s": dial tcp ` + gone.Listener.Addr().String() + `: connect: connection refused`},
		"endless bytes":  {config: webhook.Config{URL: s.URL + "/slow", CABundle: ca}, most: 1 << 10, want: "the response has more than 1024 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := webhook.New(c.config, webhook.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour-time.Millisecond)
			defer cancel()
			_, err = client.Call(ctx, []byte("{}"), c.most)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("Call: %v, want %q", err, c.want)
			}
			var status *apierrors.StatusError
			if errors.As(err, &status) != (c.status != 0) || status != nil && status.ErrStatus.Code != c.status {
				t.Errorf("Call: a status error %+v, want code %d", status, c.status)
			}
		})
	}
	if hits.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

func TestCallsWaitForTheirTurn(t *testing.T) {
	const most = 128
	var running sync.WaitGroup
	running.Add(most)
	quit := make(chan struct{})
	s, ca := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		running.Done()
		<-quit
		_, _ = w.Write([]byte("{}"))
	})
	c, err := webhook.New(webhook.Config{URL: s.URL, CABundle: ca}, webhook.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var calls sync.WaitGroup
	for range most {
		calls.Go(func() {
			if _, err := c.Call(t.Context(), []byte("{}"), 0); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Call(ctx, []byte("{}"), 0); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `Post "`+s.URL) {
		t.Errorf("Call beyond the limit: %v, want that of its context", err)
	}
	close(quit)
	calls.Wait()
}

func TestNewRefuses(t *testing.T) {
	for want, c := range map[string]webhook.Config{
		"unable to parse bytes as PEM block": {URL: "https://a", CABundle: []byte("not PEM")},
		"must have either service or URL":    {},
		"must begin with https://":           {URL: "http://a"},
		"name a host":                        {URL: "https:///path"},
		"Unparsable URL":                     {URL: "https://%zz"},
		"services cannot be reached":         {Service: &webhook.Service{Name: "a", Namespace: "b"}},
	} {
		if _, err := webhook.New(c, webhook.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v): %v, want %q", c, err, want)
		}
	}
}

// objects are services and slices.
type objects []catalog.Object

func (o objects) Get(_ context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error) {
	for _, obj := range o {
		if _, ok := obj.(*corev1.Service); ok && gvr.Resource == "services" && obj.GetNamespace() == namespace && obj.GetName() == name {
			return obj, nil
		}
	}
	return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
}

func (o objects) List(context.Context, schema.GroupVersionResource, string, fields.Set) ([]catalog.Object, error) {
	return o, nil
}

func service(name string, port int32, kind corev1.ServiceType) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hooks", Name: name},
		Spec: corev1.ServiceSpec{
			Type: kind, ExternalName: "example.com", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "https", Port: port}},
		},
	}
}

func slice(of, address string, port int32, ready bool) *discoveryv1.EndpointSlice {
	name := "https"
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hooks", Labels: map[string]string{discoveryv1.LabelServiceName: of}}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Name: &name, Port: &port}, {}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}, {}},
	}
}

func TestCallByService(t *testing.T) {
	s, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Host + r.URL.Path))
	}, "hook.hooks.svc")
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "10.0.0.1:8443" {
			t.Errorf("dialed %s", address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, s.Listener.Addr().String())
	}
	stored := objects{
		service("hook", 443, corev1.ServiceTypeClusterIP), slice("hook", "10.0.0.1", 8443, true), slice("hook", "10.0.0.2", 8443, false),
		slice("hook", "127.0.0.1", 8443, true), service("idle", 443, corev1.ServiceTypeClusterIP),
	}
	for name, c := range map[string]struct {
		to   webhook.Service
		want string
		err  string
	}{
		"an endpoint":                           {to: webhook.Service{Name: "hook", Namespace: "hooks", Path: "/a/b"}, want: "hook.hooks.svc:443/a/b"},
		"empty elements and a slash at the end": {to: webhook.Service{Name: "hook", Namespace: "hooks", Path: "/a//b/"}, want: "hook.hooks.svc:443/a/b"},
		"no endpoint":                           {to: webhook.Service{Name: "idle", Namespace: "hooks"}, err: `Post "https://idle.hooks.svc:443/": no endpoints available for service "idle"`},
		"another port":                          {to: webhook.Service{Name: "hook", Namespace: "hooks", Port: 8}, err: `no service port 8 found for service "hook"`},
		"no service":                            {to: webhook.Service{Name: "none", Namespace: "hooks"}, err: `Post "https://none.hooks.svc:443/": service "none" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := webhook.New(webhook.Config{Service: &c.to, CABundle: ca}, webhook.Options{Dial: dial, Services: webhook.Services{Objects: stored}})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			got, err := client.Call(t.Context(), []byte("{}"), 0)
			if c.err == "" && (err != nil || string(got) != c.want) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("Call: %q, %v; want %q, %q", got, err, c.want, c.err)
			}
		})
	}
}

func TestResolveExternalName(t *testing.T) {
	got, err := webhook.Services{Objects: objects{service("out", 443, corev1.ServiceTypeExternalName)}}.Resolve(t.Context(), "hooks", "out", 8443)
	if err != nil || got != "example.com:8443" {
		t.Errorf("Resolve: %q, %v", got, err)
	}
}

func TestCallByURLCleansPath(t *testing.T) {
	s, ca := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.URL.Path)) })
	for given, want := range map[string]string{"": "/", "/": "/", "//a": "/a", "/a/": "/a", "/a/../b%20c": "/b c"} {
		client, err := webhook.New(webhook.Config{URL: s.URL + given, CABundle: ca}, webhook.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := client.Call(t.Context(), []byte("{}"), 0); err != nil || string(got) != want {
			t.Errorf("the webhook at %q was called at %q, want %q: %v", given, got, want, err)
		}
		client.Close()
	}
}
