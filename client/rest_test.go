package client_test

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
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

// dial returns a client of a server that h serves.
func dial(t *testing.T, h http.Handler, opts client.RESTOptions) *client.REST {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	c, err := client.NewREST(&rest.Config{Host: server.URL}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func TestRESTConforms(t *testing.T) {
	clienttest.Conform(t, func(t *testing.T) client.Interface {
		return dial(t, clienttest.New(t).Handler(), client.RESTOptions{})
	})
}

func withoutProtobuf(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Content-Type"), "protobuf") {
			http.Error(w, "no protobuf here", http.StatusUnsupportedMediaType)
			return
		}
		r.Header.Set("Accept", "application/json")
		h.ServeHTTP(w, r)
	})
}

func TestRESTConformsWithAServerWithoutProtobuf(t *testing.T) {
	clienttest.Conform(t, func(t *testing.T) client.Interface {
		return dial(t, withoutProtobuf(clienttest.New(t).Handler()), client.RESTOptions{})
	})
}

func TestDynamicClientReturnsServerBytes(t *testing.T) {
	server := clienttest.New(t, configMap("a"))
	c := dial(t, server.Handler(), client.RESTOptions{Dynamic: true})
	gvr := client.ConfigMaps.GroupVersionResource
	items, meta, err := c.List(t.Context(), gvr, "default", metav1.ListOptions{})
	if err != nil || len(items) != 1 || meta.ResourceVersion == "" {
		t.Fatalf("List = %v, %v, %v", items, meta, err)
	}
	u, ok := items[0].(*unstructured.Unstructured)
	if !ok || u.GetKind() != "ConfigMap" || u.GetAPIVersion() != "v1" || u.GetName() != "a" {
		t.Errorf("an item is %T %v", items[0], items[0])
	}
	for e, err := range c.Watch(t.Context(), gvr, "default", metav1.ListOptions{ResourceVersion: "0"}) {
		if err != nil {
			t.Fatal(err)
		}
		if u, ok := e.Object.(*unstructured.Unstructured); !ok || u.GetName() != "a" {
			t.Errorf("an event has %T %v", e.Object, e.Object)
		}
		break
	}
	_, err = c.Get(t.Context(), gvr, "default", "b", "")
	if !apierrors.IsNotFound(err) {
		t.Errorf("Get of nothing = %v, want NotFound", err)
	}
}

// TestMetadataClientReadsNoMore has a server that knows the form and one that sends whole objects.
func TestMetadataClientReadsNoMore(t *testing.T) {
	whole := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Query().Get("watch") != "":
			_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"Whale","apiVersion":"sea.example.com/v1","metadata":{"name":"a","uid":"1"},"spec":{}}}`)
		case strings.HasSuffix(r.URL.Path, "/a"):
			_, _ = io.WriteString(w, `{"kind":"Whale","apiVersion":"sea.example.com/v1","metadata":{"name":"a","uid":"1"},"spec":{}}`)
		default:
			_, _ = io.WriteString(w, `{"kind":"WhaleList","apiVersion":"sea.example.com/v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","uid":"1"},"spec":{}}]}`)
		}
	})
	a := configMap("a")
	a.Data = map[string]string{"secret": "text"}
	knows := clienttest.New(t, a).Handler()
	for name, h := range map[string]http.Handler{"whole objects": whole, "metadata": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
			t.Errorf("%s accepts %s", r.URL, r.Header.Get("Accept"))
		}
		knows.ServeHTTP(w, r)
	})} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, h, client.RESTOptions{Metadata: true})
			gvr := client.ConfigMaps.GroupVersionResource
			got, err := c.Get(t.Context(), gvr, "default", "a", "")
			items, _, listErr := c.List(t.Context(), gvr, "default", metav1.ListOptions{})
			if err != nil || listErr != nil || len(items) != 1 {
				t.Fatalf("%v, %v, %v", items, err, listErr)
			}
			objs := []any{got, items[0]}
			for e, err := range c.Watch(t.Context(), gvr, "default", metav1.ListOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
				objs = append(objs, e.Object)
				break
			}
			for _, obj := range objs {
				m, ok := obj.(*metav1.PartialObjectMetadata)
				if !ok || m.Name != "a" || m.UID == "" || (m.Kind == "Whale") != (name == "whole objects") {
					t.Errorf("got %T %+v", obj, obj)
				}
			}
		})
	}
}

func TestUntypedKindsAreRequestedInJSON(t *testing.T) {
	accepted := map[string]string{}
	c := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepted[r.URL.Path] = r.Header.Get("Accept")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"List","apiVersion":"v1","items":[]}`)
	}), client.RESTOptions{})
	for _, gvr := range []schema.GroupVersionResource{
		client.Pods.GroupVersionResource,
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
		{Group: "example.com", Version: "v2", Resource: "widgets"},
	} {
		if _, _, err := c.List(t.Context(), gvr, "", metav1.ListOptions{}); err != nil {
			t.Errorf("list of %s: %v", gvr.Resource, err)
		}
	}
	want := map[string]string{
		"/api/v1/pods": "application/vnd.kubernetes.protobuf,application/json",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": "application/json",
		"/apis/example.com/v2/widgets":                            "application/json",
	}
	if diff := cmp.Diff(want, accepted); diff != "" {
		t.Errorf("accepted (-want +got):\n%s", diff)
	}
}

func TestTypedObjectsCarryTheirKind(t *testing.T) {
	c := dial(t, clienttest.New(t, configMap("a")).Handler(), client.RESTOptions{})
	items, _, err := client.ConfigMaps.List(t.Context(), c, "", metav1.ListOptions{})
	if err != nil || len(items) != 1 || items[0].Kind != "ConfigMap" || items[0].APIVersion != "v1" {
		t.Errorf("List = %v, %v", items, err)
	}
}

func TestABusyServerIsAskedAgain(t *testing.T) {
	inner := clienttest.New(t, configMap("a")).Handler()
	var calls atomic.Int32
	c := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) <= 2 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		inner.ServeHTTP(w, r)
	}), client.RESTOptions{})
	if _, err := client.ConfigMaps.Create(t.Context(), c, configMap("b")); err != nil || calls.Load() != 3 {
		t.Errorf("Create = %v after %d calls, want success after 3", err, calls.Load())
	}
}

func TestAnEvictionThatIsRefusedIsNotRepeated(t *testing.T) {
	var calls atomic.Int32
	c := dial(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusTooManyRequests)
	}), client.RESTOptions{})
	_, err := c.Create(t.Context(), client.Pods.GroupVersionResource, "default", "a", configMap("b"), metav1.CreateOptions{}, "eviction")
	if !apierrors.IsTooManyRequests(err) || calls.Load() != 1 {
		t.Errorf("Create = %v after %d calls, want the refusal after 1", err, calls.Load())
	}
}

func TestUnreachableErrorNamesServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	c, err := client.NewREST(&rest.Config{Host: "http://" + addr}, client.RESTOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Pods.Get(t.Context(), c, "default", "a")
	var gone *client.UnreachableError
	if !errors.As(err, &gone) || gone.Server != "http://"+addr || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("Get = %v, want an UnreachableError for %s", err, addr)
	}
}

// certificate returns a self-signed certificate for 127.0.0.1 that ended at the
// given time.
func certificate(t *testing.T, name string, end time.Time) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: end.Add(-24 * time.Hour), NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func TestAnExpiredCertificateIsNamed(t *testing.T) {
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	tests := []struct {
		name                  string
		serverEnd, clientEnd  time.Time
		wantClient            bool
		wantSubject, wantWord string
	}{
		{"the server's", past, future, false, "server", "the certificate of https://127.0.0.1:"},
		{"the client's", future, past, true, "client", "the client certificate (client) expired at"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			serverCert, serverKey := certificate(t, "server", tt.serverEnd)
			clientCert, clientKey := certificate(t, "client", tt.clientEnd)
			pair, err := tls.X509KeyPair(serverCert, serverKey)
			if err != nil {
				t.Fatal(err)
			}
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(clientCert)
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			server.TLS = &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
			}
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // the failed handshake is what we want
			server.StartTLS()
			defer server.Close()
			c, err := client.NewREST(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{
				CAData: serverCert, CertData: clientCert, KeyData: clientKey,
			}}, client.RESTOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Pods.Get(t.Context(), c, "default", "a")
			var expired *client.CertificateError
			if !errors.As(err, &expired) || expired.Client != tt.wantClient || expired.Subject != tt.wantSubject || !strings.Contains(err.Error(), tt.wantWord) {
				t.Errorf("Get = %v", err)
			}
		})
	}
}

func TestTheErrorOfAWatchIsAnAPIStatus(t *testing.T) {
	c := dial(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}}
{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}
`)
	}), client.RESTOptions{})
	seen := 0
	for e, err := range client.ConfigMaps.Watch(t.Context(), c, "", metav1.ListOptions{ResourceVersion: "0"}) {
		if err != nil {
			if seen != 1 || !apierrors.IsResourceExpired(err) {
				t.Errorf("the watch ended with %v after %d events, want Expired after 1", err, seen)
			}
			return
		}
		if seen++; e.Object.(*corev1.ConfigMap).Name != "a" {
			t.Errorf("the event has %v", e.Object)
		}
	}
	t.Errorf("the watch ended silently after %d events", seen)
}

func TestAnOrderlyEndOfAWatchIsToldAsSuch(t *testing.T) {
	over, end := context.WithCancel(t.Context())
	defer end()
	inner := clienttest.New(t, configMap("a")).Handler()
	c := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(w, r.WithContext(over)) }), client.RESTOptions{})
	var last error
	for _, err := range client.ConfigMaps.Watch(t.Context(), c, "", metav1.ListOptions{ResourceVersion: "0"}) {
		if last = err; err == nil {
			end()
		}
	}
	if !errors.Is(last, client.ErrWatchEnded) {
		t.Errorf("the watch ended with %v, want ErrWatchEnded", last)
	}
}

func TestStreamGivesTheBodyAsItIs(t *testing.T) {
	c := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/logs" {
			_, _ = io.WriteString(w, r.Method+" "+r.URL.RawQuery)
			return
		}
		http.Error(w, "no such thing", http.StatusNotFound)
	}), client.RESTOptions{})
	body, err := c.Stream(t.Context(), http.MethodGet, "/logs", url.Values{"follow": {"true"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if text, err := io.ReadAll(body); err != nil || string(text) != "GET follow=true" {
		t.Errorf("Stream gave %q, %v", text, err)
	}
	if _, err := c.Stream(t.Context(), http.MethodGet, "/other", nil, nil); !apierrors.IsNotFound(err) {
		t.Errorf("Stream of nothing = %v, want NotFound", err)
	}
}

func TestThePathHasNoEmptySegment(t *testing.T) {
	for _, suffix := range []string{"", "/", "/prefix", "/prefix/"} {
		got := make(chan string, 1)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got <- r.URL.Path
			w.WriteHeader(http.StatusNotFound)
		}))
		c, err := client.NewREST(&rest.Config{Host: server.URL + suffix}, client.RESTOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, _, _ = c.List(t.Context(), client.Pods.GroupVersionResource, "default", metav1.ListOptions{})
		if path, want := <-got, strings.TrimSuffix(suffix, "/")+"/api/v1/namespaces/default/pods"; path != want {
			t.Errorf("server at %q is asked for %q, want %q", suffix, path, want)
		}
		server.Close()
	}
}

func TestWarningsAreToldToWhoeverWantsThem(t *testing.T) {
	inner := clienttest.New(t, configMap("a")).Handler()
	var told []string
	c := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Warning", `299 - "unknown field \"spec.colour\""`)
		inner.ServeHTTP(w, r)
	}), client.RESTOptions{Warn: func(text string) { told = append(told, text) }})
	if _, err := client.ConfigMaps.Get(t.Context(), c, "default", "a"); err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(t.Context(), client.RawRequest{Path: "/version"})
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if len(told) != 2 || told[0] != `unknown field "spec.colour"` || told[1] != told[0] {
		t.Errorf("told %q", told)
	}
}

// silent takes requests and says nothing until the test is over.
func silent(t *testing.T) *rest.Config {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half" { // an answer that begins
			_, _ = io.WriteString(w, "{")
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL}
}

func TestASilentServerIsGivenUpOn(t *testing.T) {
	limited := silent(t)
	limited.Timeout = 20 * time.Millisecond
	hasty, err := client.NewREST(limited, client.RESTOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patient, err := client.NewREST(silent(t), client.RESTOptions{})
	if err != nil {
		t.Fatal(err)
	}
	read := func(c *client.REST, r client.RawRequest) error {
		resp, err := c.Do(t.Context(), r)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		_, err = io.ReadAll(resp.Body)
		return err
	}
	for _, tt := range []struct {
		name string
		ask  func() error
	}{
		{"an object", func() error {
			_, err := hasty.Get(t.Context(), corev1.SchemeGroupVersion.WithResource("configmaps"), "default", "a", "")
			return err
		}},
		{"anything", func() error { return read(hasty, client.RawRequest{Path: "/apis"}) }},
		{"the rest of an answer", func() error { return read(hasty, client.RawRequest{Path: "/half"}) }},
		{"anything, with a limit of its own", func() error {
			return read(patient, client.RawRequest{Path: "/apis", Limit: 20 * time.Millisecond})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.ask()
			if _, ok := errors.AsType[*client.UnreachableError](err); !ok || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 20ms") {
				t.Errorf("error = %v, want one about the time", err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	if _, err := hasty.Do(ctx, client.RawRequest{Path: "/apis", Endless: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("an endless request ended with %v, want only what its context says", err)
	}
}

func TestNamesAreNotPaths(t *testing.T) {
	c := dial(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the server was asked for %s", r.URL)
	}), client.RESTOptions{})
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	for _, tt := range []struct{ namespace, name string }{{"default", ".."}, {"..", "a"}, {"default", "a/b"}, {"a/../b", "c"}, {"default", "%2e"}} {
		if err := c.Delete(t.Context(), pods, tt.namespace, tt.name, metav1.DeleteOptions{}); err == nil || !strings.Contains(err.Error(), "invalid") {
			t.Errorf("Delete of %q in %q = %v, want it refused", tt.name, tt.namespace, err)
		}
	}
}
