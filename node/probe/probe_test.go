package probe_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/node/probe"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func TestCounter(t *testing.T) {
	tests := []struct {
		name    string
		probe   corev1.Probe
		answers string // + and -
		want    string // the verdict after each
	}{
		{"ready at the first success", corev1.Probe{FailureThreshold: 3}, "+", "+"},
		{"not ready by one failure", corev1.Probe{FailureThreshold: 3}, "+--+---", "++++++-"},
		{"failures must follow each other", corev1.Probe{FailureThreshold: 2}, "+-+-+--", "++++++-"},
		{"several successes", corev1.Probe{SuccessThreshold: 2, FailureThreshold: 1}, "+-++-", "---+-"},
		{"never well", corev1.Probe{}, "----", "----"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := probe.NewCounter(probe.Readiness, &tt.probe, start)
			got := ""
			for _, a := range tt.answers {
				before := c.Verdict
				if changed := c.Answer(a == '+', start); changed != (c.Verdict != before) {
					t.Errorf("Answer says changed=%t", changed)
				}
				got += map[bool]string{true: "+", false: "-"}[c.Verdict]
			}
			if got != tt.want {
				t.Errorf("answers %s give %s, want %s", tt.answers, got, tt.want)
			}
		})
	}
}

func TestCounterKeepsPeriods(t *testing.T) {
	c := probe.NewCounter(probe.Readiness, &corev1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 2}, start)
	if c.Next != start.Add(5*time.Second) {
		t.Errorf("first at %v", c.Next)
	}
	c.Answer(true, start.Add(6*time.Second))
	if c.Next != start.Add(8*time.Second) {
		t.Errorf("then at %v", c.Next)
	}
}

func TestNetwork(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok":
			fmt.Fprint(w, r.Host, r.URL.RawQuery)
		case "/teapot":
			w.WriteHeader(http.StatusTeapot)
		case "/headers":
			if r.Host != "inner" || r.Header.Get("X-A") != "b" || !strings.HasPrefix(r.UserAgent(), "kube-probe/") {
				w.WriteHeader(http.StatusBadRequest)
			}
		case "/moved":
			http.Redirect(w, r, "/teapot", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "https://elsewhere.invalid/", http.StatusFound)
		case "/slow":
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().(*net.TCPAddr).Port
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	container := &corev1.Container{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}}
	get := func(path string, headers ...corev1.HTTPHeader) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("web"), Scheme: corev1.URISchemeHTTPS, HTTPHeaders: headers}}
	}
	tcp := func(port int) corev1.ProbeHandler {
		return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(int32(port))}}
	}
	tests := []struct {
		name    string
		handler corev1.ProbeHandler
		want    string // part of the error; empty for none
	}{
		{"well", get("/ok"), ""},
		{"a path with a query, without a slash", get("ok?x=1"), ""},
		{"an error code", get("/teapot"), "HTTP probe failed with statuscode: 418"},
		{"headers", get("/headers", corev1.HTTPHeader{Name: "Host", Value: "inner"}, corev1.HTTPHeader{Name: "X-A", Value: "b"}), ""},
		{"a redirect is followed", get("/moved"), "statuscode: 418"},
		{"but not to another host", get("/away"), "Probe terminated redirects"},
		{"an answer that does not come", get("/slow"), "context deadline exceeded"},
		{"a port without a name", corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("none")}}, "invalid port number: none"},
		{"somebody listens", tcp(port), ""},
		{"nobody listens", tcp(nobody), "connection refused"},
		{"another kind", corev1.ProbeHandler{}, "unsupported probe"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			limit := 10 * time.Second
			if strings.Contains(tt.want, "deadline") {
				limit = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err := probe.Network{}.Probe(ctx, &corev1.Probe{ProbeHandler: tt.handler}, container, "", "127.0.0.1")
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Probe = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestCounterProbesStartingContainersOften(t *testing.T) {
	began := time.Unix(1000, 0)
	c := probe.NewCounter(probe.Readiness, &corev1.Probe{PeriodSeconds: 1, InitialDelaySeconds: 3}, began)
	if got := c.Next.Sub(began); got != 3*time.Second {
		t.Errorf("first look after %v, want the initial delay", got)
	}
	now := c.Next
	next := func(ok bool) time.Duration {
		c.Answer(ok, now)
		d := c.Next.Sub(now)
		now = c.Next
		return d
	}
	for _, want := range []time.Duration{20, 40, 80, 160, 320, 640} {
		if got := next(false); got != want*time.Millisecond || !c.Starting() {
			t.Errorf("pause %v (starting %v), want %v", got, c.Starting(), want*time.Millisecond)
		}
	}
	if got := next(false); got != time.Second || c.Starting() {
		t.Errorf("pause %v (starting %v), want the period", got, c.Starting())
	}

	c = probe.NewCounter(probe.Readiness, &corev1.Probe{PeriodSeconds: 1}, began)
	now = c.Next
	next(false)
	if got := next(true); got != time.Second || c.Starting() {
		t.Errorf("pause after the first good answer %v, want the period", got)
	}
	if got := next(false); got != time.Second {
		t.Errorf("pause after a later bad answer %v, want the period", got)
	}
}
