package node_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/simulation/simulated"
)

// served starts the agent with its API, and returns a client of that without a credential.
func (r *rig) served(ca *authority) kubelet {
	r.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.Fatal(err)
	}
	r.opts.Listeners = []net.Listener{l}
	r.opts.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue("system:node:n1", "system:nodes")}}
	r.opts.ClientCAs = ca.pool
	r.Cleanup(r.start())
	<-r.node.Ready()
	return kubelet{t: r.T, base: "https://" + l.Addr().String()}
}

func TestUsageIsMeasured(t *testing.T) {
	r := newRig(t)
	ca := newAuthority(t)
	server := r.served(ca).as(ca, ca.issue("kube-apiserver-kubelet-client"))
	r.create(webPod("web", func(p *corev1.Pod) {
		p.Annotations = map[string]string{simulated.CPU: "250m", simulated.Memory: "64Mi"}
	}))
	r.create(webPod("bad", func(p *corev1.Pod) { p.Annotations = map[string]string{simulated.CPU: "much"} }))
	r.await("web", "ready", isReady)

	code, body, head := server.do("GET", "/metrics/resource")
	for _, want := range []string{
		"\ncontainer_memory_working_set_bytes{container=\"web\",namespace=\"default\",pod=\"web\"} 6.7108864e+07 ",
		"\ncontainer_cpu_usage_seconds_total{container=\"web\",namespace=\"default\",pod=\"web\"} ",
		"\npod_memory_working_set_bytes{namespace=\"default\",pod=\"web\"} 6.7108864e+07 ",
		"\nnode_memory_working_set_bytes 6.7108864e+07 ", "\nnode_cpu_usage_seconds_total ", "\nscrape_error 0",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in %s", want, body)
		}
	}
	if code != 200 || !strings.HasPrefix(head.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("%d, %v", code, head)
	}

	code, body, _ = server.do("GET", "/stats/summary")
	var s statsapi.Summary
	if err := json.Unmarshal([]byte(body), &s); err != nil || code != 200 {
		t.Fatalf("%d %s: %v", code, body, err)
	}
	if s.Node.NodeName != "n1" || *s.Node.Memory.WorkingSetBytes != 64<<20 || s.Node.CPU.UsageCoreNanoSeconds == nil {
		t.Errorf("node: %+v", s.Node)
	}
	i := 0
	for i < len(s.Pods) && s.Pods[i].PodRef.Name != "web" {
		i++
	}
	if i == len(s.Pods) || len(s.Pods[i].Containers) != 1 || *s.Pods[i].Containers[0].Memory.WorkingSetBytes != 64<<20 || s.Pods[i].StartTime.IsZero() {
		t.Errorf("pods: %s", body)
	}
	if code, body, _ := server.do("GET", "/stats/summary?only_cpu_and_memory=perhaps"); code != http.StatusBadRequest {
		t.Errorf("%d %s", code, body)
	}
	r.await("bad", "not running, because of its annotation", func(p *corev1.Pod) bool {
		if len(p.Status.ContainerStatuses) == 0 {
			return false
		}
		for _, state := range []corev1.ContainerState{p.Status.ContainerStatuses[0].State, p.Status.ContainerStatuses[0].LastTerminationState} {
			if state.Terminated != nil && strings.Contains(state.Terminated.Message, simulated.CPU) {
				return true
			}
		}
		return false
	})
}

// reviewing is a client whose API server knows the token "secret" as that of the user scraper, who may read metrics, and
// has no other rules. It counts the questions.
type reviewing struct {
	client.Interface
	asked atomic.Int64
	down  atomic.Bool
}

func (c *reviewing) Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource string) (runtime.Object, error) {
	obj = obj.DeepCopyObject()
	switch review := obj.(type) {
	case *authenticationv1.TokenReview:
		if review.Spec.Token == "secret" {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "scraper", Groups: []string{"ops"}}}
		}
	case *authorizationv1.SubjectAccessReview:
		a := review.Spec.ResourceAttributes
		review.Status.Allowed = review.Spec.User == "scraper" && a.Verb == "get" && a.Resource == "nodes" && a.Subresource == "metrics" && a.Name == "n1"
	default:
		return c.Interface.Create(ctx, gvr, namespace, name, obj, opts, subresource)
	}
	if c.asked.Add(1); c.down.Load() {
		return nil, errors.New("no connection")
	}
	return obj, nil
}

// TestKubeletAuthorization has users that are known by a certificate or a token, and may use a part of the API.
func TestKubeletAuthorization(t *testing.T) {
	r := newRig(t)
	ca := newAuthority(t)
	api := &reviewing{Interface: r.opts.Client}
	r.opts.Client = api
	anybody := r.served(ca)
	joe, scraper, token := anybody.as(ca, ca.issue("joe")), anybody.as(ca, ca.issue("scraper")), anybody.as(ca).with("secret")
	for _, tt := range []struct {
		who  kubelet
		path string
		want string // how the answer begins
	}{
		{joe, "/metrics/resource", "403 Forbidden (user=joe, verb=get, resource=nodes, subresource(s)=[metrics])"},
		{joe, "/stats/summary", "403 Forbidden (user=joe, verb=get, resource=nodes, subresource(s)=[stats])"},
		{joe, "/pods", "403 Forbidden (user=joe, verb=get, resource=nodes, subresource(s)=[pods proxy])"},
		{joe, "/healthz", "403 Forbidden (user=joe, verb=get, resource=nodes, subresource(s)=[healthz proxy])"},
		{joe, "/metricsfake", "403 Forbidden (user=joe, verb=get, resource=nodes, subresource(s)=[proxy])"},
		{scraper, "/metrics/resource", "200 # HELP"},
		{scraper, "/containerLogs/default/web/web", "403 Forbidden (user=scraper, verb=get, resource=nodes, subresource(s)=[proxy])"},
		{scraper, "/metrics/..%2fpods", "404 "},
		{token, "/metrics/resource", "200 # HELP"},
		{token, "/pods", "403 Forbidden (user=scraper,"},
		{anybody.as(ca).with("guess"), "/metrics/resource", "401 Unauthorized"},
		{anybody.as(ca), "/metrics/resource", "401 Unauthorized"},
	} {
		if code, body, _ := tt.who.do("GET", tt.path); !strings.HasPrefix(codeAnd(code, body), tt.want) {
			t.Errorf("%s: %d %s, want %s", tt.path, code, body, tt.want)
		}
	}
	asked := api.asked.Load()
	for range 3 {
		token.do("GET", "/metrics/resource")
		joe.do("GET", "/stats/summary")
	}
	if now := api.asked.Load(); now != asked {
		t.Errorf("the API server was asked %d times for the same", now-asked)
	}
	api.down.Store(true)
	if code, body, _ := anybody.as(ca, ca.issue("eve")).do("GET", "/metrics/resource"); code != http.StatusInternalServerError {
		t.Errorf("with no answer from the API server: %d %s", code, body)
	}
	if code, _, _ := anybody.as(ca, ca.issue("joe", "system:masters")).do("GET", "/metrics/resource"); code != http.StatusOK {
		t.Errorf("an administrator needs the API server: %d", code)
	}
}
