package forward_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/forward"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/catalog"
)

// byHeader believes the header X-User.
type byHeader struct{}

func (byHeader) Authenticate(r *http.Request) (*auth.User, error) {
	u := &auth.User{Name: r.Header.Get("X-User")}
	if u.Name == "" {
		u = &auth.User{Name: "admin", Groups: []string{auth.GroupMasters}}
	}
	return u, nil
}

// network is what the forwarder can dial, by address.
type network struct {
	mu      sync.Mutex
	servers map[string]string
}

func (n *network) dial(ctx context.Context, protocol, address string) (net.Conn, error) {
	n.mu.Lock()
	real := n.servers[address]
	n.mu.Unlock()
	if real == "" {
		return nil, fmt.Errorf("dial tcp %s: connect: connection refused", address)
	}
	return new(net.Dialer).DialContext(ctx, protocol, real)
}

// fixture is an API server, and a network with servers in pods.
type fixture struct {
	*testing.T
	*network
	admin *apiserver.Local
	front *httptest.Server
}

func open(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, network: &network{servers: map[string]string{}}}
	kubelet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "kubelet %s cookie=%s", r.URL.RequestURI(), r.Header.Get("Cookie"))
	}))
	t.Cleanup(kubelet.Close)
	server := apiservertest.Open(t, func(o *apiserver.Options) {
		o.Auth = byHeader{}
		fwd, err := forward.New(forward.Options{
			Objects: operation.NewReader(o.Catalog, o.Store), Fail: httpserver.WriteError, Dial: f.dial,
			Kubelet: func(n *corev1.Node) (forward.Kubelet, error) {
				to := &http.Transport{DialContext: f.dial, DialTLSContext: f.dial, DisableKeepAlives: true}
				return forward.Kubelet{Host: n.Status.Addresses[0].Address, Port: "10250", Transport: to, Verified: n.Name == "own"}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		target := func(q httpserver.ConnectRequest) forward.Target {
			return forward.Target{Scheme: q.Scheme, Port: q.Port, Path: q.Path}
		}
		o.Connect[catalog.PodProxy] = func(w http.ResponseWriter, r *http.Request, q httpserver.ConnectRequest) {
			fwd.Pod(w, r, q.Object.(*corev1.Pod), target(q))
		}
		o.Connect[catalog.ServiceProxy] = func(w http.ResponseWriter, r *http.Request, q httpserver.ConnectRequest) {
			fwd.Service(w, r, q.Object.(*corev1.Service), target(q))
		}
		o.Connect[catalog.NodeProxy] = func(w http.ResponseWriter, r *http.Request, q httpserver.ConnectRequest) {
			fwd.Node(w, r, q.Object.(*corev1.Node), target(q))
		}
	})
	f.admin = server.As(auth.User{Name: "admin", Groups: []string{auth.GroupMasters}})
	f.front = httptest.NewServer(server.Handler())
	t.Cleanup(f.front.Close)
	f.servers["10.1.0.1:10250"], f.servers["127.0.0.1:10250"] = kubelet.Listener.Addr().String(), kubelet.Listener.Addr().String()
	return f
}

// listen makes a server answer at an address of the network.
func (f *fixture) listen(address string, tls bool, serve http.HandlerFunc) {
	f.Helper()
	s := httptest.NewUnstartedServer(serve)
	if tls {
		s.StartTLS()
	} else {
		s.Start()
	}
	f.Cleanup(s.Close)
	f.servers[address] = s.Listener.Addr().String()
}

func (f *fixture) create(resource string, obj catalog.Object) {
	f.Helper()
	gvr := corev1.SchemeGroupVersion.WithResource(resource)
	if resource == "endpointslices" {
		gvr = discoveryv1.SchemeGroupVersion.WithResource(resource)
	}
	status := obj.DeepCopyObject().(catalog.Object)
	made, err := f.admin.Create(f.Context(), gvr, obj.GetNamespace(), "", obj, metav1.CreateOptions{}, "")
	if err != nil {
		f.Fatal(err)
	}
	if resource != "pods" && resource != "nodes" {
		return
	}
	status.SetResourceVersion(made.(catalog.Object).GetResourceVersion())
	if _, err := f.admin.Update(f.Context(), gvr, obj.GetNamespace(), obj.GetName(), status, metav1.UpdateOptions{}, "status"); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) pod(name string, ports []int32, ips ...string) {
	f.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	for _, n := range ports {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{ContainerPort: n})
	}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	f.create("pods", p)
}

func (f *fixture) service(name string, ports []corev1.ServicePort, endpoints ...discoveryv1.Endpoint) {
	f.Helper()
	f.create("services", &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: "None", Ports: ports},
	})
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ship", Name: name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
	}
	for _, p := range ports {
		number := int32(p.TargetPort.IntValue())
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &number})
	}
	f.create("endpointslices", slice)
}

func endpoint(ip, pod string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "ship", Name: pod}}
}

func (f *fixture) do(method, path, body string, headers ...string) (*http.Response, string) {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, f.front.URL+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableCompression: true, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		f.Fatalf("%s %s: %v", method, path, err)
	}
	text := string(data)
	if status := (metav1.Status{}); json.Unmarshal(data, &status) == nil && status.Kind == "Status" {
		text = status.Message
	}
	return resp, text
}

const pods, services = "/api/v1/namespaces/ship/pods/", "/api/v1/namespaces/ship/services/"

func says(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s: %s %s %s", name, r.Method, r.URL.RequestURI(), body)
	}
}

func TestProxyReachesPodsAndServices(t *testing.T) {
	f := open(t)
	f.pod("web", []int32{80, 160}, "10.0.0.5")
	f.pod("bare", nil, "10.0.0.6")
	f.pod("six", []int32{80}, "fd00::5")
	f.listen("10.0.0.5:80", false, says("eighty"))
	f.listen("10.0.0.5:160", false, says("dest"))
	f.listen("10.0.0.5:443", true, says("tls"))
	f.listen("10.0.0.6:80", false, says("bare"))
	f.listen("[fd00::5]:80", false, says("six"))
	port := func(name string, number, target int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: number, TargetPort: intstr.FromInt32(target)}
	}
	no := false
	unready := endpoint("10.0.0.6", "bare")
	unready.Conditions.Ready = &no
	f.service("named", []corev1.ServicePort{port("http", 80, 160), port("https", 443, 443)}, unready, endpoint("10.0.0.5", "web"))
	f.service("single", []corev1.ServicePort{port("", 8080, 80)}, endpoint("10.0.0.5", "web"))
	f.service("empty", []corev1.ServicePort{port("", 80, 80)})
	for _, tt := range []struct {
		path string
		code int
		want string
	}{
		{pods + "web/proxy/", 200, "eighty: POST / hello"},
		{pods + "web/proxy", 200, "eighty: POST / hello"},
		{pods + "web/proxy?a=b%20c", 200, "eighty: POST /?a=b%20c hello"},
		{pods + "web/proxy/some/path/?a", 200, "eighty: POST /some/path/?a hello"},
		{pods + "web/proxy/a%20b/../c", 200, "eighty: POST /c hello"},
		{pods + "web:160/proxy/x", 200, "dest: POST /x hello"},
		{pods + "http:web:160/proxy/x", 200, "dest: POST /x hello"},
		{pods + "https:web:443/proxy/x", 200, "tls: POST /x hello"},
		{pods + "bare/proxy/", 200, "bare: POST / hello"},
		{pods + "six/proxy/", 200, "six: POST / hello"},
		{pods + "web:81/proxy/", 503, "error trying to reach service: dial tcp 10.0.0.5:81: connect: connection refused"},
		{pods + "web:http/proxy/", 503, "error trying to reach service: dial tcp: lookup tcp/http: unknown port"},
		{pods + "web:99999/proxy/", 503, "error trying to reach service: dial tcp: lookup tcp/99999: unknown port"},
		{pods + "ftp:web:21/proxy/", 400, `invalid pod request "ftp:web:21"`},
		{pods + "a:b:c:d/proxy/", 400, `invalid pod request "a:b:c:d"`},
		{pods + "none/proxy/", 404, `pods "none" not found`},
		{services + "named:http/proxy/x", 200, "dest: POST /x hello"},
		{services + "named:80/proxy/x", 200, "dest: POST /x hello"},
		{services + "http:named:http/proxy/x", 200, "dest: POST /x hello"},
		{services + "https:named:https/proxy/x", 200, "tls: POST /x hello"},
		{services + "https:named:443/proxy/x", 200, "tls: POST /x hello"},
		{services + "single/proxy", 200, "eighty: POST / hello"},
		{services + "single:8080/proxy/y/", 200, "eighty: POST /y/ hello"},
		{services + "named/proxy/", 503, `no endpoints available for service "named"`},
		{services + "named:81/proxy/", 503, `no service port 81 found for service "named"`},
		{services + "named:other/proxy/", 503, `no endpoints available for service "named"`},
		{services + "empty/proxy/", 503, `no endpoints available for service "empty"`},
		{services + "ftp:single:21/proxy/", 400, `invalid service request "ftp:single:21"`},
	} {
		if resp, got := f.do(http.MethodPost, tt.path, "hello"); resp.StatusCode != tt.code || got != tt.want {
			t.Errorf("%s: %d %q, want %d %q", tt.path, resp.StatusCode, got, tt.code, tt.want)
		}
	}
}

// TestProxyPassesMethods is what the conformance tests of upstream do with a pod and a service.
func TestProxyPassesMethods(t *testing.T) {
	f := open(t)
	f.pod("agnhost", nil, "10.0.0.5")
	f.listen("10.0.0.5:80", false, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method) })
	f.service("test-service", []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}, endpoint("10.0.0.5", "agnhost"))
	for _, at := range []string{pods + "agnhost/proxy", services + "test-service/proxy"} {
		for _, method := range []string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"} {
			want := method
			if method == http.MethodHead {
				want = ""
			}
			if resp, got := f.do(method, at+"/some/path/with/"+method, ""); resp.StatusCode != http.StatusOK || got != want {
				t.Errorf("%s %s/…: %d %q", method, at, resp.StatusCode, got)
			}
			resp, got := f.do(method, at+"?method="+method, "")
			if method == http.MethodGet || method == http.MethodHead {
				if resp.StatusCode != http.StatusMovedPermanently || resp.Header.Get("Location") != at+"/?method="+method {
					t.Errorf("%s %s: %d to %q, want 301", method, at, resp.StatusCode, resp.Header.Get("Location"))
				}
			} else if resp.StatusCode != http.StatusOK || got != want {
				t.Errorf("%s %s: %d %q", method, at, resp.StatusCode, got)
			}
		}
	}
	if resp, _ := f.do("OPTIONS", "/api/v1/namespaces/ship/pods/agnhost", ""); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("OPTIONS of a pod: %d, want 405", resp.StatusCode)
	}
}

func TestProxyRefusesAddresses(t *testing.T) {
	f := open(t)
	refuse := func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") }
	for i, ip := range []string{"127.0.0.1", "169.254.169.254", "::1", "fe80::1", "224.0.0.1", "0.0.0.0"} {
		f.listen(net.JoinHostPort(ip, "80"), false, refuse)
		name := fmt.Sprint("p", i)
		f.pod(name, []int32{80}, ip)
		for _, path := range []string{name + "/proxy/", "http:" + name + ":80/proxy/x"} {
			if resp, got := f.do("GET", pods+path, ""); resp.StatusCode != http.StatusBadRequest || got != "address not allowed" {
				t.Errorf("pod with the address %s: %d %q", ip, resp.StatusCode, got)
			}
		}
	}
	f.pod("without", nil)
	if resp, got := f.do("GET", pods+"without/proxy/", ""); resp.StatusCode != http.StatusBadRequest || got != "address not allowed" {
		t.Errorf("pod without an address: %d %q", resp.StatusCode, got)
	}
	// Endpoints that users write are used only if they are pods of the namespace.
	f.pod("web", nil, "10.0.0.5")
	f.listen("10.0.0.9:80", false, refuse)
	ports := []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}
	elsewhere := endpoint("10.0.0.5", "web")
	elsewhere.TargetRef.Namespace = "other"
	f.service("written", ports, discoveryv1.Endpoint{Addresses: []string{"10.0.0.9"}}, endpoint("10.0.0.9", "web"), endpoint("10.0.0.9", "none"), elsewhere)
	if resp, got := f.do("GET", services+"written/proxy/", ""); resp.StatusCode != http.StatusServiceUnavailable || got != `no endpoints available for service "written"` {
		t.Errorf("service with endpoints that are no pods: %d %q", resp.StatusCode, got)
	}
}

func TestProxyReachesNodes(t *testing.T) {
	f := open(t)
	for name, ip := range map[string]string{"n1": "10.1.0.1", "own": "127.0.0.1", "local": "127.0.0.1"} {
		f.create("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}}})
	}
	f.listen("10.1.0.1:9100", false, says("exporter"))
	for _, tt := range []struct {
		path string
		code int
		want string
	}{
		{"n1/proxy/pods?a", 200, "kubelet /pods?a cookie="},
		{"n1:10250/proxy/pods", 200, "kubelet /pods cookie="},
		{"n1:9100/proxy/metrics", 200, "exporter: GET /metrics "},
		{"own/proxy/pods", 200, "kubelet /pods cookie="},
		{"own:6443/proxy/", 400, "address not allowed"},
		{"local/proxy/pods", 400, "address not allowed"},
		{"n1:x/proxy/", 503, "error trying to reach service: dial tcp: lookup tcp/x: unknown port"},
		{"ftp:n1:1/proxy/", 400, `invalid node request "ftp:n1:1"`},
	} {
		if resp, got := f.do("GET", "/api/v1/nodes/"+tt.path, "", "Cookie", "a=b"); resp.StatusCode != tt.code || got != tt.want {
			t.Errorf("%s: %d %q, want %d %q", tt.path, resp.StatusCode, got, tt.code, tt.want)
		}
	}
}

func TestProxyChangesLinks(t *testing.T) {
	f := open(t)
	f.pod("web", []int32{80}, "10.0.0.5")
	at := pods + "http:web:80/proxy"
	long := "<script>" + strings.Repeat("/* no link */", 100_000) + "</script>"
	pages := map[string]string{
		"/plain":   `<!doctype html><a href="/x/">a</a> <img src='/i.png' alt="/i"> <a href="rel">b</a> <a href="http://10.0.0.5:80/y?q=1#f">c</a> <a href="https://example.com/z">d</a><p class=/a>text</p>`,
		"/twice":   `<a href="` + at + `/x">a</a>`,
		"/invalid": `<a href="/%zz">a</a><a href="`,
		"/long":    `<a href="/x">a</a>` + long + `<a href="/y">b</a>`,
	}
	want := map[string]string{
		"/plain":   `<!doctype html><a href="` + at + `/x/">a</a> <img src="` + at + `/i.png" alt="/i"> <a href="rel">b</a> <a href="` + at + `/y?q=1#f">c</a> <a href="https://example.com/z">d</a><p class=/a>text</p>`,
		"/twice":   pages["/twice"],
		"/invalid": pages["/invalid"],
		"/long":    `<a href="` + at + `/x">a</a>` + long + `<a href="/y">b</a>`,
	}
	f.listen("10.0.0.5:80", false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		body := []byte(pages[r.URL.Path])
		switch r.URL.RawQuery {
		case "gzip":
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write(body)
			_ = z.Close()
			w.Header().Set("Content-Encoding", "gzip")
			body = b.Bytes()
		case "text":
			w.Header().Set("Content-Type", "text/plain")
		}
		_, _ = w.Write(body)
	})
	for path, page := range want {
		for _, query := range []string{"", "?gzip"} {
			resp, got := f.do("GET", at+path+query, "")
			if got != page || resp.Header.Get("Access-Control-Allow-Origin") != "" || resp.Header.Get("Content-Encoding") != "" {
				t.Errorf("%s%s: %.300s, want %.300s; %v", path, query, got, page, resp.Header)
			}
		}
		if _, got := f.do("GET", at+path+"?text", ""); got != pages[path] {
			t.Errorf("%s as text: %.300s", path, got)
		}
		if resp, got := f.do("HEAD", at+path+"?gzip", ""); resp.StatusCode != 200 || got != "" {
			t.Errorf("HEAD %s: %d %q", path, resp.StatusCode, got)
		}
	}
}

func TestProxyChangesRedirects(t *testing.T) {
	f := open(t)
	f.pod("web", []int32{80}, "10.0.0.5")
	f.listen("10.0.0.5:80", false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusFound)
	})
	at := pods + "web/proxy"
	for to, want := range map[string]string{
		"/login":                   at + "/login",
		"/login/":                  at + "/login/",
		"http://10.0.0.5:80/login": at + "/login",
		"https://example.com/":     "https://example.com/",
		"next":                     "next",
	} {
		resp, _ := f.do("GET", at+"/?to="+to, "")
		if got := resp.Header.Get("Location"); resp.StatusCode != http.StatusFound || got != want {
			t.Errorf("a redirect to %s: %d %s, want %s", to, resp.StatusCode, got, want)
		}
	}
}

func TestProxyHidesIdentity(t *testing.T) {
	f := open(t)
	f.pod("web", []int32{80}, "10.0.0.5")
	var got http.Header
	f.listen("10.0.0.5:80", false, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	f.do("GET", pods+"web/proxy/a/",
		"", "Authorization", "Bearer secret", "X-Remote-User", "root", "Cookie", "session=1", "X-Custom", "stays", "X-Forwarded-For", "192.0.2.1",
		"Sec-Websocket-Protocol", "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0")
	for name, want := range map[string]string{
		"Authorization": "", "X-Remote-User": "", "Cookie": "session=1", "X-Custom": "stays",
		"X-Forwarded-For": "192.0.2.1, 127.0.0.1", "X-Forwarded-Uri": pods + "web/proxy/a/", "Sec-Websocket-Protocol": "v4.channel.k8s.io",
	} {
		if got.Get(name) != want {
			t.Errorf("the pod got %s: %q, want %q", name, got.Get(name), want)
		}
	}
}

func TestProxyNeedsRights(t *testing.T) {
	f := open(t)
	f.pod("web", []int32{80}, "10.0.0.5")
	f.listen("10.0.0.5:80", false, func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") })
	for method, verb := range map[string]string{"GET": "get", "HEAD": "", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "OPTIONS": ""} {
		resp, got := f.do(method, pods+"https:web:80/proxy/a", "", "X-User", "jane")
		want := fmt.Sprintf(`pods "https:web:80" is forbidden: User "jane" cannot %s resource "pods/proxy" in API group "" in the namespace "ship"`, verb)
		if resp.StatusCode != http.StatusForbidden || method != http.MethodHead && got != want {
			t.Errorf("%s: %d %q, want %q", method, resp.StatusCode, got, want)
		}
	}
}

// TestProxyUpgrades has a client and a pod that leave HTTP, as for WebSockets.
func TestProxyUpgrades(t *testing.T) {
	f := open(t)
	f.pod("web", []int32{80}, "10.0.0.5")
	f.listen("10.0.0.5:80", false, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "echo" {
			http.Error(w, "not an upgrade", http.StatusBadRequest)
			return
		}
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "echo")
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.Copy(c, rw)
	})
	ask := func(path string) (*bufio.Reader, net.Conn, *http.Response) {
		t.Helper()
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", f.front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", path)
		from := bufio.NewReader(c)
		resp, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		return from, c, resp
	}
	from, c, resp := ask(pods + "web/proxy") // not redirected to the path with a slash
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "echo" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	for i := range 100 {
		fmt.Fprintf(c, "line %d\n", i)
		if line, err := from.ReadString('\n'); err != nil || line != fmt.Sprintf("line %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	_ = c.(*net.TCPConn).CloseWrite()
	if _, err := from.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	_, _, resp = ask(pods + "web:81/proxy/")
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusInternalServerError || !strings.Contains(string(body), "error dialing backend: dial tcp 10.0.0.5:81: connect: connection refused") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestProxyGivesUpWithItsClient has a pod that never answers.
func TestProxyGivesUpWithItsClient(t *testing.T) {
	f := open(t)
	f.pod("web", []int32{80}, "10.0.0.5")
	arrived, gone := make(chan struct{}), make(chan struct{})
	f.listen("10.0.0.5:80", false, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.front.URL+pods+"web/proxy/", nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-arrived
		cancel()
	}()
	if resp, err := http.DefaultClient.Do(r); err == nil {
		_ = resp.Body.Close()
		t.Error("answered")
	}
	<-gone
}
