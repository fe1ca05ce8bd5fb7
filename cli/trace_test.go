package cli_test

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/trace"
)

// traced are a node, a Service and its one endpoint.
func traced() []client.Object {
	node := machine("n1", "4", func(n *corev1.Node) {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	})
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080}},
		},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.2"}, NodeName: new("n1"), TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-1"}}},
	}
	return []client.Object{node, svc, slice, pod("web-1", nil), pod("late", func(p *corev1.Pod) { p.Spec.NodeName = "" })}
}

const agent = "/api/v1/nodes/n1/proxy" + trace.AgentPath

func TestTraceAsksTheAgentOfTheNode(t *testing.T) {
	w, url := serve(t, traced()...)
	c := newTerminal(t, url)
	result := trace.Answered
	w.extra[agent] = func(rw http.ResponseWriter, r *http.Request) {
		q, err := trace.ParseQuestion(r.URL.Query())
		if err != nil || q.Service.Name != "web" || q.Service.Namespace != "default" {
			t.Errorf("asked %v, %+v, %v", r.URL, q, err)
		}
		a := trace.Answer{Result: result, Seconds: 0.001}
		at := netip.MustParseAddrPort("10.244.0.2:8080")
		answer(rw, http.StatusOK, trace.NodeReport{Node: "n1", Known: true, Here: proxy.Here{Node: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}, Frontends: []trace.FrontendSeen{{
			Address: netip.MustParseAddr("10.96.0.1"), Port: 80, PortName: "http", Protocol: corev1.ProtocolTCP,
			Kernel: &proxy.Seen{Found: true, Backends: []netip.AddrPort{at}}, Frontend: &a, Endpoints: []trace.EndpointAnswer{{At: at, Answer: a}},
		}}})
	}
	c.want(0, `default/web answers at 10.96.0.1:80/TCP

10.96.0.1:80/TCP  answers in 1ms
├─ client     node n1
├─ rule       the cluster IP, port http of default/web, in kernel mode, on node n1
├─ source     the server sees the address of node n1
└─ endpoints  1 of 1 may be chosen, 1 of 1 answer
   └─ 10.244.0.2:8080  web-1 on n1  answers in 1ms

also at 192.0.2.1:30080/TCP (node port)

hint: pod late is not an endpoint: not yet on a node: no scheduler has decided about it yet
`, "", "service", "trace", "web")

	result = trace.Refused
	got := c.run("svc", "trace", "10.96.0.1:80", "-o", "json")
	var shown trace.Trace
	if err := json.Unmarshal([]byte(got.out), &shown); err != nil {
		t.Fatal(err)
	}
	if got.code != 2 || got.err != "error: nothing answers at Service default/web\n" || shown.Answers == nil || *shown.Answers ||
		shown.Kind != "ServiceTrace" || shown.Paths[0].Endpoints[0].Answer.Result != trace.Refused || !strings.Contains(shown.Paths[0].Endpoints[0].Why, "nothing listens on port 8080 of the pod") {
		t.Errorf("exit code %d, stderr %s, %+v", got.code, got.err, shown)
	}
}

// TestTraceTellsThePlanWhereTheNodeCantBeAsked has what other clusters and servers say.
func TestTraceTellsThePlanWhereTheNodeCantBeAsked(t *testing.T) {
	w, url := serve(t, traced()...)
	c := newTerminal(t, url)
	nodes := schema.GroupResource{Resource: "nodes"}
	for name, tt := range map[string]struct {
		answer func(http.ResponseWriter)
		note   string
	}{
		"upstream's kubelet": {func(rw http.ResponseWriter) { http.Error(rw, "404 page not found", http.StatusNotFound) }, "node n1 does not run Sampan's agent and service proxy"},
		"forbidden":          {func(rw http.ResponseWriter) { fail(rw, apierrors.NewForbidden(nodes, "n1", nil)) }, `nodes "n1" is forbidden`},
		"unreachable": {func(rw http.ResponseWriter) {
			fail(rw, apierrors.NewServiceUnavailable("error trying to reach service"))
		}, "error trying to reach service"},
		"another program": {func(rw http.ResponseWriter) { _, _ = rw.Write([]byte("<html>")) }, "the answer of the node's agent is not understood"},
	} {
		t.Run(name, func(t *testing.T) {
			w.extra[agent] = func(rw http.ResponseWriter, _ *http.Request) { tt.answer(rw) }
			got := c.run("service", "trace", "web")
			if got.code != 0 || !strings.HasPrefix(got.out, "default/web leads from 10.96.0.1:80/TCP to 1 endpoint; what answers is not known\nnote: what the node has and what answers is not known: ") ||
				!strings.Contains(got.out, tt.note) || !strings.Contains(got.out, "not tried") {
				t.Errorf("exit code %d\n%s%s, want a note with %q", got.code, got.out, got.err, tt.note)
			}
		})
	}
	w.extra[agent] = func(rw http.ResponseWriter, _ *http.Request) {
		answer(rw, http.StatusUnprocessableEntity, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity, Message: "pod default/web-1 is not running on this node",
		})
	}
	if got := c.run("service", "trace", "web"); got.code != 1 || !strings.Contains(got.err, "pod default/web-1 is not running on this node") {
		t.Errorf("exit code %d, %s, want what the agent says is wrong", got.code, got.err)
	}
}

func TestTraceOfNothing(t *testing.T) {
	_, url := serve(t, traced()...)
	c := newTerminal(t, url)
	for _, tt := range []struct {
		code int
		err  string
		args string
	}{
		{4, "error: services default/wbe not found; the nearest: default/web\n", "wbe"},
		{4, "error: services other/web not found; the nearest: default/web\n", "web -n other"},
		{4, "error: Service default/web has no port htpp; the nearest: http (80/TCP)\n", "web:htpp"},
		{4, "error: no Service has the address 10.96.0.1:81; the nearest: 10.96.0.1:80/TCP (default/web)\n", "10.96.0.1:81"},
		{4, "error: no Service has the node port 30081, at node n1; the nearest: 30080/TCP (default/web)\n", "192.0.2.1:30081"},
		{1, "error: --from: pod default/none not found\n", "web --from none"},
		{1, "error: --from: pod default/late is not scheduled yet and cannot connect\n", "web --from pod/late"},
		{1, "error: --from: pod default/web-1 is Pending, has no network and cannot connect\n", "web --from default/web-1"},
		{1, "error: --from \"a/b/c\": want the name of a pod, or NAMESPACE/NAME\n", "web --from a/b/c"},
		{1, "error: --from-node: node \"n9\" not found\n", "web --from-node n9"},
		{1, "error: web.other is in namespace other, but -n is default\nusage: see 'sampan service trace --help'\n", "web.other -n default"},
	} {
		got := c.run(append([]string{"service", "trace"}, strings.Fields(tt.args)...)...)
		if got.code != tt.code || got.err != tt.err || got.out != "" {
			t.Errorf("trace %s: exit code %d\n%s%s, want %d\n%s", tt.args, got.code, got.out, got.err, tt.code, tt.err)
		}
	}
}
