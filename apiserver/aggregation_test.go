package apiserver_test

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
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	registrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/aggregation"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/discovery"
	"github.com/sampan-io/sampan/apiserver/openapi"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/catalog/apiregistration"
	"github.com/sampan-io/sampan/internal/run"
)

// An extension is a server of the group sea.example.com behind the Service default/sea.
type extension struct {
	*httptest.Server
	caPEM  []byte
	client tls.Certificate

	mu      sync.Mutex
	seen    []*http.Request // for anything but discovery
	answers map[string]http.HandlerFunc
}

// issue returns a certificate that ca signs, or that signs itself.
func issue(t testing.TB, c *x509.Certificate, ca *tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := c, any(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func newExtension(t testing.TB) *extension {
	t.Helper()
	ca := issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	server := issue(t, &x509.Certificate{DNSNames: []string{"sea.default.svc"}, ExtKeyUsage: usage}, &ca)
	e := &extension{
		client:  issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "front-proxy-client"}, ExtKeyUsage: usage}, &ca),
		caPEM:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate[0]}),
		answers: map[string]http.HandlerFunc{},
	}
	clients := x509.NewCertPool()
	clients.AddCert(ca.Leaf)
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(e.serve))
	e.EnableHTTP2 = true
	e.TLS = &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	e.StartTLS()
	t.Cleanup(func() { e.CloseClientConnections(); e.Close() })
	e.answers["/apis"] = func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }
	e.answers["/apis/sea.example.com/v1"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "sea.example.com/v1",
			APIResources: []metav1.APIResource{
				{Name: "whales", SingularName: "whale", Kind: "Whale", Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch"}},
				{Name: "whales/status", Kind: "Whale", Namespaced: true, Verbs: metav1.Verbs{"get"}},
				{Name: "", Kind: "Nothing"},
			},
		})
	}
	e.answers["/openapi/v3"] = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"paths":{"apis/sea.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/sea.example.com/v1?hash=1"}}}`)
	}
	return e
}

func (e *extension) serve(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	h := e.answers[r.URL.Path]
	if r.Header.Get("X-Remote-User") != "system:kube-aggregator" {
		e.seen = append(e.seen, r.Clone(context.Background()))
	}
	e.mu.Unlock()
	if h == nil {
		http.NotFound(w, r)
		return
	}
	h(w, r)
}

func (e *extension) answer(path string, h http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answers[path] = h
}

// count returns how many requests the server has seen.
func (e *extension) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.seen)
}

func (e *extension) last() *http.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.seen) == 0 {
		return nil
	}
	return e.seen[len(e.seen)-1]
}

// byTestHeader makes every request one of the user that a header names.
type byTestHeader struct{}

func (byTestHeader) Authenticate(r *http.Request) (*auth.User, error) {
	u := &auth.User{Name: r.Header.Get("X-Test-User"), UID: "u1", Groups: []string{"system:authenticated"}, Extra: map[string][]string{"example.com/Team": {"blue"}}}
	if u.Name == "" {
		u.Name, u.Groups = "admin", []string{auth.GroupMasters}
	}
	return u, nil
}

// A front is an API server in front of extensions.
type front struct {
	t      testing.TB
	url    string
	api    *apiserver.Local
	client *http.Client
	others *aggregation.Aggregator
}

func openFront(t testing.TB, e *extension) *front {
	t.Helper()
	var a *aggregation.Aggregator
	s := apiservertest.Open(t, func(o *apiserver.Options) {
		var err error
		a, err = aggregation.New(t.Context(), aggregation.Options{
			Catalog: o.Catalog, BuiltIn: o.Catalog.Snapshot(), Objects: operation.NewReader(o.Catalog, o.Store), Log: o.Log,
			Certificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &e.client, nil },
			Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, e.Listener.Addr().String())
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		o.Auth, o.Aggregator = byTestHeader{}, a
		o.Discovery = discovery.NewAggregated(o.Catalog, version.Info{Major: "1"}, a)
		o.OpenAPI = openapi.NewAggregated(o.Catalog, "v1.37.0", a)
	})
	g := run.NewGroup(t.Context(), 0)
	f := &front{t: t, api: s.As(auth.User{Name: "admin", Groups: []string{auth.GroupMasters}}), client: &http.Client{}, others: a}
	g.Go(func(ctx context.Context) { _ = a.Run(ctx, f.api) })
	t.Cleanup(g.Stop)
	web := httptest.NewServer(s.Handler())
	t.Cleanup(web.Close)
	f.url = web.URL
	<-a.Ready()
	return f
}

func (f *front) do(method, path, body string, header ...string) (int, http.Header, string) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := f.client.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

func (f *front) create(obj catalogObject, namespace string) {
	f.t.Helper()
	gvr := registrationv1.SchemeGroupVersion.WithResource("apiservices")
	switch obj.(type) {
	case *corev1.Service:
		gvr = corev1.SchemeGroupVersion.WithResource("services")
	case *discoveryv1.EndpointSlice:
		gvr = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	case *corev1.Namespace:
		gvr = corev1.SchemeGroupVersion.WithResource("namespaces")
	}
	if _, err := f.api.Create(f.t.Context(), gvr, namespace, "", obj, metav1.CreateOptions{}, ""); err != nil {
		f.t.Fatal(err)
	}
}

// until waits until the condition Available of an APIService has a reason, and returns its message.
func (f *front) until(name, reason string) string {
	f.t.Helper()
	gvr := registrationv1.SchemeGroupVersion.WithResource("apiservices")
	seen := map[string]bool{}
	for ev, err := range f.api.Watch(f.t.Context(), gvr, "", metav1.ListOptions{FieldSelector: "metadata.name=" + name}) {
		if err != nil {
			f.t.Fatalf("%s: %v, reasons so far %v, want %s", name, err, slices.Collect(maps.Keys(seen)), reason)
		}
		if c := apiregistration.Available(ev.Object.(*registrationv1.APIService)); c != nil {
			if seen[c.Reason] = true; c.Reason == reason {
				return c.Message
			}
		}
	}
	return ""
}

// describedAs waits until the aggregated document has a version with so many resources.
func (f *front) describedAs(want string) {
	f.t.Helper()
	for f.t.Context().Err() == nil {
		_, _, doc := f.do("GET", "/apis", "", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		if strings.Contains(doc, want) {
			return
		}
		run.Pause(f.t.Context(), 5*time.Millisecond)
	}
}

type catalogObject interface {
	metav1.Object
	GetObjectKind() schema.ObjectKind
	DeepCopyObject() runtime.Object
}

// register makes the objects of the extension, in the order in which a user sees each reason.
func (f *front) register(e *extension) {
	f.t.Helper()
	f.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, "")
	f.create(&registrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.sea.example.com"},
		Spec: registrationv1.APIServiceSpec{
			Group: "sea.example.com", Version: "v1", GroupPriorityMinimum: 2000, VersionPriority: 15, CABundle: e.caPEM,
			Service: &registrationv1.ServiceReference{Namespace: "default", Name: "sea"},
		},
	}, "")
	if m := f.until("v1.sea.example.com", "ServiceNotFound"); m != `service/sea in "default" is not present` {
		f.t.Errorf("message %q", m)
	}
	f.create(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "sea"},
		Spec:       corev1.ServiceSpec{ClusterIP: "None", Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}, "default")
	if m := f.until("v1.sea.example.com", "EndpointsNotFound"); m != `cannot find endpointslices for service/sea in "default"` {
		f.t.Errorf("message %q", m)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "sea", Labels: map[string]string{discoveryv1.LabelServiceName: "sea"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(443))}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}}},
	}
	f.create(slice, "default")
	if m := f.until("v1.sea.example.com", "MissingEndpoints"); m != `endpointslices for service/sea in "default" have no addresses with port name "https"` {
		f.t.Errorf("message %q", m)
	}
	code, _, body := f.do("GET", "/apis/sea.example.com/v1/whales", "")
	if code != http.StatusServiceUnavailable || body != "service unavailable\n" {
		f.t.Errorf("without a server: %d %q", code, body)
	}
	slice = slice.DeepCopy()
	slice.Endpoints[0].Conditions.Ready = nil
	if _, err := f.api.Update(f.t.Context(), discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), "default", "sea", slice, metav1.UpdateOptions{}, ""); err != nil {
		f.t.Fatal(err)
	}
	f.until("v1.sea.example.com", "Passed")
}

// touch changes the Service, so that its server is asked again.
func (f *front) touch(how string) {
	f.t.Helper()
	gvr := corev1.SchemeGroupVersion.WithResource("services")
	svc, err := f.api.Get(f.t.Context(), gvr, "default", "sea", "")
	if err != nil {
		f.t.Fatal(err)
	}
	next := svc.(*corev1.Service).DeepCopy()
	next.Annotations = map[string]string{"now": how}
	if _, err := f.api.Update(f.t.Context(), gvr, "default", "sea", next, metav1.UpdateOptions{}, ""); err != nil {
		f.t.Fatal(err)
	}
}

func TestRequestsArePassedOn(t *testing.T) {
	e := newExtension(t)
	f := openFront(t, e)
	f.register(e)
	e.answer("/apis/sea.example.com/v1/namespaces/default/whales", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		w.Header().Set("Audit-ID", r.Header.Get("Audit-ID"))
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "got %s", body)
	})
	code, header, body := f.do("POST", "/apis/sea.example.com/v1/namespaces/default/whales?dryRun=All", "moby", "Authorization", "Bearer secret",
		"X-Remote-User", "root", "X-Remote-Extra-Scopes", "all", "Accept", "application/vnd.kubernetes.protobuf", "X_Remote_Group", "system:masters")
	if code != http.StatusCreated || body != "got moby" || header.Get("Content-Type") != "application/vnd.kubernetes.protobuf" {
		t.Errorf("answer %d %v %q", code, header, body)
	}
	r := e.last()
	if ids := header.Values("Audit-ID"); len(ids) != 1 || ids[0] == "" || r.Header.Get("Audit-ID") != ids[0] {
		t.Errorf("the answer has the Audit-ID %q, the other server has seen %q", ids, r.Header.Values("Audit-ID"))
	}
	for name, want := range map[string]string{
		"X-Remote-User": "admin", "X-Remote-Uid": "u1", "X-Remote-Group": auth.GroupMasters, "X-Remote-Extra-Example.com%2fteam": "blue",
		"Authorization": "", "X-Remote-Extra-Scopes": "", "X_remote_group": "", "Accept": "application/vnd.kubernetes.protobuf",
	} {
		if got := strings.Join(r.Header.Values(name), ","); got != want {
			t.Errorf("header %s is %q, want %q; all: %v", name, got, want, r.Header)
		}
	}
	if len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != "front-proxy-client" || r.URL.RawQuery != "dryRun=All" {
		t.Errorf("request %s by %v", r.URL, r.TLS.PeerCertificates)
	}

	// Authorization comes first, and the other server does not see a refused request.
	before := e.count()
	if code, _, body := f.do("GET", "/apis/sea.example.com/v1/namespaces/default/whales", "", "X-Test-User", "eve"); code != http.StatusForbidden ||
		!strings.Contains(body, `whales.sea.example.com is forbidden: User \"eve\" cannot list resource \"whales\" in API group \"sea.example.com\" in the namespace \"default\"`) {
		t.Errorf("eve: %d %s", code, body)
	}
	if e.count() != before {
		t.Error("the server has seen a request that was refused")
	}
	// Its client can't be sent elsewhere, and a request that comes back ends.
	e.answer("/apis/sea.example.com/v1/moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://192.0.2.9/", http.StatusFound)
	})
	if code, header, body := f.do("GET", "/apis/sea.example.com/v1/moved", ""); code != http.StatusBadGateway || header.Get("Location") != "" ||
		body != "the backend attempted to redirect this request, which is not permitted" {
		t.Errorf("redirect: %d %s", code, body)
	}
	if code, _, _ := f.do("GET", "/apis/sea.example.com/v1/moved", "", "Via", r.Header.Get("Via")); code != http.StatusLoopDetected {
		t.Errorf("loop: %d", code)
	}
	// The OpenAPI document is the other server's.
	e.answer("/openapi/v3/apis/sea.example.com/v1", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "whale song") })
	f.describedAs("whales")
	if _, _, body := f.do("GET", "/openapi/v3", ""); !strings.Contains(body, `"apis/sea.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/sea.example.com/v1?hash=1"}`) {
		t.Errorf("index without the document: %s", body)
	}
	if _, _, body := f.do("GET", "/openapi/v3/apis/sea.example.com/v1?hash=1", ""); body != "whale song" {
		t.Errorf("document %q", body)
	}
}

// swaggerAs waits until the OpenAPI v2 document has, or lacks, a text and returns it.
func (f *front) swaggerAs(part string, has bool) (doc struct {
	Paths       map[string]any
	Definitions map[string]map[string]any
},
) {
	f.t.Helper()
	for f.t.Context().Err() == nil {
		_, _, body := f.do("GET", "/openapi/v2", "")
		if strings.Contains(body, part) == has {
			if err := json.Unmarshal([]byte(body), &doc); err != nil {
				f.t.Fatal(err)
			}
			return doc
		}
		run.Pause(f.t.Context(), 5*time.Millisecond)
	}
	return doc
}

// TestSwaggerOfOtherServersIsJoined has a server whose document describes more than its version, with names that are taken.
func TestSwaggerOfOtherServersIsJoined(t *testing.T) {
	e := newExtension(t)
	f := openFront(t, e)
	operation := `{"get":{"operationId":"%s","produces":["application/json"],"parameters":[{"$ref":"#/parameters/p"}],"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/%s"}}}}}`
	document := func(more string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"`+more+`"`)
			if r.Header.Get("If-None-Match") == `"`+more+`"` {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			_, _ = fmt.Fprintf(w, `{"swagger":"2.0","info":{"title":"sea","version":"1"},"paths":{"/apis/sea.example.com/v1/whales":%s,"/apis/apps/v1/evil":%s},
				"parameters":{"p":{"name":"pretty","in":"query","type":"string"}},
				"definitions":{"Whale":{"type":"object","minProperties":1,"properties":{"pod":{"$ref":"#/definitions/io.k8s.api.core.v1.Pod"}},
					"x-kubernetes-group-version-kind":[{"group":"sea.example.com","version":"v1","kind":"Whale"},{"group":"","version":"v1","kind":"Pod"}]},
				"io.k8s.api.core.v1.Pod":{"type":"object","description":"theirs","x-kubernetes-group-version-kind":[{"group":"","version":"v1","kind":"Pod"}]},
				"Evil":{"type":"object"}%s}}`, fmt.Sprintf(operation, "listWhale", "Whale"), fmt.Sprintf(operation, "evil", "Evil"), more)
		}
	}
	before := f.swaggerAs("whales", false)
	e.answer("/openapi/v2", document(""))
	f.register(e)
	doc := f.swaggerAs("/apis/sea.example.com/v1/whales", true)
	whale, pod := doc.Definitions["Whale"], doc.Definitions["io.k8s.api.core.v1.Pod_v2"]
	kind := []any{map[string]any{"group": "sea.example.com", "version": "v1", "kind": "Whale"}}
	if !reflect.DeepEqual(whale["x-kubernetes-group-version-kind"], kind) || whale["minProperties"] != 1.0 ||
		!reflect.DeepEqual(whale["properties"], map[string]any{"pod": map[string]any{"$ref": "#/definitions/io.k8s.api.core.v1.Pod_v2"}}) {
		t.Errorf("the whale is %v", whale)
	}
	if pod["description"] != "theirs" || pod["x-kubernetes-group-version-kind"] != nil {
		t.Errorf("the definition with a name that is taken is %v", pod)
	}
	if doc.Paths["/apis/apps/v1/evil"] != nil || doc.Definitions["Evil"] != nil {
		t.Error("a server describes another group")
	}
	for name, was := range before.Definitions {
		if !reflect.DeepEqual(doc.Definitions[name], was) {
			t.Errorf("%s is not what it was", name)
		}
	}
	var message openapiv2.Document
	_, header, body := f.do("GET", "/openapi/v2", "", "Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
	if err := proto.Unmarshal([]byte(body), &message); err != nil {
		t.Fatal(err)
	}
	if n := len(message.GetPaths().GetPath()); n != len(doc.Paths) || len(message.GetDefinitions().GetAdditionalProperties()) != len(doc.Definitions) || header.Get("ETag") == "" {
		t.Errorf("%d paths in protobuf, %d in JSON", n, len(doc.Paths))
	}
	// What clients could not read is left out, and the rest stays.
	e.answer("/openapi/v2", document(`,"Broken":{"type":"object","items":{"$ref":5}}`))
	f.touch("broken")
	e.answer("/apis/sea.example.com/v1", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","resources":[{"name":"dolphins","namespaced":true,"kind":"Dolphin","verbs":["list"]}]}`)
	})
	f.touch("again")
	f.describedAs("dolphins")
	if doc := f.swaggerAs("io.k8s.api.apps.v1.Deployment", true); len(doc.Definitions) < len(before.Definitions) {
		t.Errorf("%d definitions, want at least %d", len(doc.Definitions), len(before.Definitions))
	}
	if err := f.api.Delete(t.Context(), registrationv1.SchemeGroupVersion.WithResource("apiservices"), "", "v1.sea.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if doc := f.swaggerAs("whales", false); !reflect.DeepEqual(doc, before) {
		t.Error("without the server the document is not what it was")
	}
}

func TestEventsArePassedOnAtOnce(t *testing.T) {
	e := newExtension(t)
	f := openFront(t, e)
	f.register(e)
	next := make(chan string)
	ended := make(chan struct{})
	e.answer("/apis/sea.example.com/v1/whales", func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		for {
			select {
			case s := <-next:
				_, _ = io.WriteString(w, s+"\n")
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/apis/sea.example.com/v1/whales?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(t.Context(), 0)
	defer g.Stop()
	g.Go(func(context.Context) { next <- "one" })
	resp, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for _, want := range []string{"one", "two"} {
		if want == "two" {
			next <- want
		}
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("line %q, want %q", lines.Text(), want)
		}
	}
	cancel()
	<-ended // a watch of a client that has gone ends at the other server
}

func TestProtocolsArePassedOn(t *testing.T) {
	e := newExtension(t)
	f := openFront(t, e)
	f.register(e)
	e.answer("/apis/sea.example.com/v1/namespaces/default/whales/moby/exec", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "sonar" || r.Header.Get("X-Remote-User") != "admin" {
			http.Error(w, "want sonar", http.StatusBadRequest)
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: sonar\r\n\r\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = rw.WriteString("echo " + line)
		_ = rw.Flush()
	})
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET /apis/sea.example.com/v1/namespaces/default/whales/moby/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: sonar\r\n\r\n")
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	_, _ = io.WriteString(c, "ping\n")
	if line, err := in.ReadString('\n'); err != nil || line != "echo ping\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestServersThatMisbehaveHarmNoOthers(t *testing.T) {
	e := newExtension(t)
	f := openFront(t, e)
	f.register(e)
	f.describedAs(`"resource":"whales"`)

	// Requests that hang have a bound of their own; beyond it they are refused at once.
	hang := make(chan struct{})
	e.answer("/apis/sea.example.com/v1/hang", func(http.ResponseWriter, *http.Request) { <-hang })
	g := run.NewGroup(t.Context(), 0)
	var mu sync.Mutex
	codes := map[int]int{}
	refused := make(chan struct{}, 200)
	for range 150 {
		g.Go(func(ctx context.Context) {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/apis/sea.example.com/v1/hang", nil)
			if err != nil {
				return
			}
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				return
			}
			resp.Body.Close()
			mu.Lock()
			codes[resp.StatusCode]++
			mu.Unlock()
			refused <- struct{}{}
		})
	}
	for range 50 {
		<-refused
	}
	mu.Lock()
	if codes[http.StatusTooManyRequests] != 50 {
		t.Errorf("codes %v, want 50 refusals", codes)
	}
	mu.Unlock()
	if code, _, _ := f.do("GET", "/api/v1/namespaces", ""); code != http.StatusOK {
		t.Errorf("namespaces while another server hangs: %d", code)
	}
	close(hang)
	g.Wait()

	// What is no document, or too large a one, leaves what was known.
	for name, h := range map[string]http.HandlerFunc{
		"garbage": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "\x00[[[[") },
		"huge": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"kind":"`)
			for range 20 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		},
		"large": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"kind":"APIResourceList","resources":[{"name":"a","kind":"A","categories":["%s"]}]}`, strings.Repeat("x", 2<<20))
		},
		"other kind": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"kind":"Status"}`) },
		"nulls": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"kind":"APIResourceList","resources":null,"items":[null]}`)
		},
	} {
		e.answer("/apis/sea.example.com/v1", h)
		f.touch(name)
		if name != "nulls" {
			f.describedAs(`"freshness":"Stale"`)
		}
		if _, _, doc := f.do("GET", "/apis", ""); !strings.Contains(doc, `"name":"apps"`) || !strings.Contains(doc, `"name":"sea.example.com"`) {
			t.Errorf("%s: groups %s", name, doc)
		}
	}
}

func TestBuiltInVersionsStayHere(t *testing.T) {
	e := newExtension(t)
	f := openFront(t, e)
	gvr := registrationv1.SchemeGroupVersion.WithResource("apiservices")
	o, err := f.api.Get(t.Context(), gvr, "", "v1.rbac.authorization.k8s.io", "")
	if err != nil {
		t.Fatal(err)
	}
	own := o.(*registrationv1.APIService)
	if own.Spec.GroupPriorityMinimum != 17000 || own.Spec.VersionPriority != 15 || own.Labels["kube-aggregator.kubernetes.io/automanaged"] != "onstart" {
		t.Errorf("APIService %+v", own)
	}
	taken := own.DeepCopy()
	taken.Labels = nil
	taken.Spec.Service = &registrationv1.ServiceReference{Namespace: "default", Name: "sea"}
	taken.Spec.InsecureSkipTLSVerify = true
	written, err := f.api.Update(t.Context(), gvr, "", own.Name, taken, metav1.UpdateOptions{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if code, _, _ := f.do("GET", "/apis/rbac.authorization.k8s.io/v1/roles", ""); code != http.StatusOK {
		t.Errorf("roles: %d", code)
	}
	rv := written.(*registrationv1.APIService).ResourceVersion
	for ev, err := range f.api.Watch(t.Context(), gvr, "", metav1.ListOptions{FieldSelector: "metadata.name=" + own.Name, ResourceVersion: rv}) {
		if err != nil {
			t.Fatal(err)
		}
		if now := ev.Object.(*registrationv1.APIService); now.Spec.Service == nil && now.Labels["kube-aggregator.kubernetes.io/automanaged"] == "onstart" {
			break
		}
	}
	if err := f.api.Delete(t.Context(), gvr, "", "v1.apps", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.until("v1.apps", "Local") // it is made again
	if e.last() != nil {
		t.Errorf("a request for a built-in group was passed on: %s", e.last().URL)
	}
}

func TestNamespacesAreEmptiedElsewhere(t *testing.T) {
	e := newExtension(t)
	f := openFront(t, e)
	f.register(e)
	e.answer("/apis/sea.example.com/v1", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","resources":[{"name":"whales","namespaced":true,"kind":"Whale","verbs":["list","delete"]},{"name":"songs","namespaced":true,"kind":"Song","verbs":["list"]}]}`)
	})
	left := []string{"moby", "willy"}
	var mu sync.Mutex
	e.answer("/apis/sea.example.com/v1/namespaces/away/whales", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if got := r.Header.Get("X-Remote-User"); got != "keeper" {
			t.Errorf("asked by %q", got)
		}
		list := metav1.PartialObjectMetadataList{}
		for _, name := range left {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		_ = json.NewEncoder(w).Encode(list)
	})
	e.answer("/apis/sea.example.com/v1/namespaces/away/whales/moby", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodDelete {
			left = []string{"willy"} // which has a finalizer
		}
	})
	e.answer("/apis/sea.example.com/v1/namespaces/away/whales/willy", func(http.ResponseWriter, *http.Request) {})
	f.touch("asked again")
	f.describedAs(`"resource":"songs"`)
	c := f.others.Empty(t.Context(), &auth.User{Name: "keeper"}, "away")
	if items := c.Left[schema.GroupResource{Group: "sea.example.com", Resource: "whales"}]; len(c.Errors)+len(c.Stale) > 0 || len(items) != 1 || items[0].Name != "willy" {
		t.Errorf("left %+v", c)
	}
	e.answer("/apis/sea.example.com/v1", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) })
	f.touch("broken")
	if m := f.until("v1.sea.example.com", "FailedDiscoveryCheck"); !strings.Contains(m, "bad status from https://192.0.2.1:443/apis/sea.example.com/v1: 500") {
		t.Errorf("message %q", m)
	}
	f.describedAs(`"freshness":"Stale"`)
	if c := f.others.Empty(t.Context(), &auth.User{Name: "keeper"}, "away"); len(c.Stale) != 1 || c.Stale[0].String() != "sea.example.com/v1" {
		t.Errorf("with a server that is not available: %+v", c)
	}
}

func TestMetricsServerReplacesComputedMetrics(t *testing.T) {
	e := newExtension(t)
	f := openFront(t, e)
	const path = "/apis/metrics.k8s.io/v1beta1/nodes"
	if code, _, body := f.do("GET", path, ""); code != http.StatusOK || !strings.Contains(body, `"kind":"NodeMetricsList"`) {
		t.Errorf("computed: %d %s", code, body)
	}
	f.register(e)
	e.answer("/apis/metrics.k8s.io/v1beta1", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","groupVersion":"metrics.k8s.io/v1beta1","resources":[{"name":"nodes","kind":"NodeMetrics","verbs":["get","list"]}]}`)
	})
	e.answer(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "theirs") })
	f.create(&registrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1beta1.metrics.k8s.io"},
		Spec: registrationv1.APIServiceSpec{
			Group: "metrics.k8s.io", Version: "v1beta1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: e.caPEM,
			Service: &registrationv1.ServiceReference{Namespace: "default", Name: "sea"},
		},
	}, "")
	f.until("v1beta1.metrics.k8s.io", "Passed")
	if code, _, body := f.do("GET", path, ""); code != http.StatusOK || body != "theirs" {
		t.Errorf("installed: %d %s", code, body)
	}
	if _, _, doc := f.do("GET", "/apis", ""); strings.Count(doc, `"name":"metrics.k8s.io"`) != 1 {
		t.Errorf("groups %s", doc)
	}
	if err := f.api.Delete(t.Context(), registrationv1.SchemeGroupVersion.WithResource("apiservices"), "", "v1beta1.metrics.k8s.io", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for t.Context().Err() == nil {
		if _, _, body := f.do("GET", path, ""); strings.Contains(body, `"kind":"NodeMetricsList"`) {
			break
		}
		run.Pause(t.Context(), 5*time.Millisecond)
	}
}
