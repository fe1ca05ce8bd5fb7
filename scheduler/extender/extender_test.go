package extender_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/cluster/pki"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/extender"
	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

// answering serves canned answers by verb, and returns what was asked last.
func answering(t *testing.T, answers map[string]string) (url string, asked func() map[string]any) {
	t.Helper()
	var last map[string]any
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last = nil
		if err := json.NewDecoder(r.Body).Decode(&last); err != nil {
			t.Error(err)
		}
		_, _ = w.Write([]byte(answers[strings.TrimPrefix(r.URL.Path, "/x/")]))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/x/", func() map[string]any { return last }
}

func open(t *testing.T, o extender.Options) *extender.Extender {
	t.Helper()
	e, err := extender.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var (
	nodes = []*corev1.Node{plugintest.Node("a"), plugintest.Node("b"), plugintest.Node("c")}
	pod   = plugintest.Pod("p")
)

func TestAskFiltersAndRanks(t *testing.T) {
	url, asked := answering(t, map[string]string{
		"filter": `{"NodeNames":["a"],"FailedNodes":{"b":"busy"},"FailedAndUnresolvableNodes":{"c":"broken"}}`,
		"rank":   `[{"Host":"a","Score":7}]`,
	})
	e := open(t, extender.Options{URL: url, Filter: "filter", Prioritize: "rank", Weight: 2, NamesOnly: true})
	got, err := e.Ask(t.Context(), pod, nodes)
	if err != nil {
		t.Fatal(err)
	}
	want := scheduler.Opinion{Refused: map[string]plugin.Verdict{"b": plugin.Refuse("busy"), "c": plugin.Never("broken")}, Scores: map[string]int64{"a": 140}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if names, _ := asked()["NodeNames"].([]any); len(names) != 1 || asked()["Nodes"] != nil {
		t.Errorf("the second question was %v, want the name of a alone", asked())
	}
}

func TestAnswersThatMakeNoSense(t *testing.T) {
	for verbs, tt := range map[string]struct{ filter, rank, want string }{
		"an error":         {`{"Error":"no"}`, "", "no"},
		"an unknown node":  {`{"NodeNames":["z"]}`, "", `names node "z"`},
		"no JSON":          {`<html>`, "", "invalid character"},
		"too high a score": {`{"NodeNames":["a","b","c"]}`, `[{"Host":"a","Score":11}]`, `the score 11, want 0 to 10`},
	} {
		t.Run(verbs, func(t *testing.T) {
			url, _ := answering(t, map[string]string{"f": tt.filter, "r": tt.rank})
			_, err := open(t, extender.Options{URL: url, Filter: "f", Prioritize: "r", Weight: 1, NamesOnly: true}).Ask(t.Context(), pod, nodes)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Ask = %v, want an error that says %q", err, tt.want)
			}
		})
	}
}

func TestSpareAndBind(t *testing.T) {
	url, asked := answering(t, map[string]string{
		"preempt": `{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"default/v"}]}}}`, "bind": `{"Error":"taken"}`,
	})
	e := open(t, extender.Options{URL: url, Preempt: "preempt", Bind: "bind"})
	if ok, err := e.Spare(t.Context(), pod, "a", []*corev1.Pod{plugintest.Pod("v")}); !ok || err != nil {
		t.Errorf("Spare on a = %v, %v", ok, err)
	}
	if ok, err := e.Spare(t.Context(), pod, "b", []*corev1.Pod{plugintest.Pod("v")}); ok || err != nil {
		t.Errorf("Spare on b = %v, %v", ok, err)
	}
	if err := e.Bind(t.Context(), pod, "a"); err == nil || err.Error() != "taken" || asked()["PodUID"] != "default/p" || asked()["Node"] != "a" {
		t.Errorf("Bind = %v after %v", err, asked())
	}
}

func TestInterest(t *testing.T) {
	e := open(t, extender.Options{URL: "http://x", Resources: []corev1.ResourceName{"x.io/gpu"}})
	if e.Interested(pod) || !e.Interested(plugintest.Pod("p", "asks=x.io/gpu:1")) {
		t.Error("it is interested in what it does not manage, or not in what it does")
	}
}

func TestATimeoutEndsARequest(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}))
	defer s.Close()
	defer close(release)
	_, err := open(t, extender.Options{URL: s.URL, Filter: "f", Timeout: 50 * time.Millisecond}).Ask(context.Background(), pod, nodes)
	if err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("Ask = %v", err)
	}
}

// TestTheClientShowsItsCertificate has a server that believes only clients of its authority.
func TestTheClientShowsItsCertificate(t *testing.T) {
	authority, err := pki.Open(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	issue := func(s pki.Subject) *tls.Certificate {
		c, err := authority.Issue(s, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS.PeerCertificates[0].Subject.CommonName != "system:kube-scheduler" {
			t.Errorf("the client is %v", r.TLS.PeerCertificates[0].Subject)
		}
		_, _ = w.Write([]byte(`{"NodeNames":["a"]}`))
	}))
	s.TLS = &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool(),
		Certificates: []tls.Certificate{*issue(pki.Subject{CommonName: "extender", DNSNames: []string{"extender"}})},
	}
	s.StartTLS()
	defer s.Close()
	cert, key, err := pki.PEM(issue(pki.Subject{CommonName: "system:kube-scheduler"}))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name      string
		cert, key []byte
		server    string
		works     bool
	}{{"as it should be", cert, key, "extender", true}, {"without a certificate", nil, nil, "extender", false}, {"another server", cert, key, "other", false}} {
		c, err := extender.ClientTLS(authority.CertificatePEM(), tt.cert, tt.key, tt.server, false)
		if err != nil {
			t.Fatal(err)
		}
		_, err = open(t, extender.Options{URL: s.URL, Filter: "f", NamesOnly: true, TLS: c}).Ask(t.Context(), pod, nodes)
		if (err == nil) != tt.works {
			t.Errorf("%s: Ask = %v", tt.name, err)
		}
	}
	if _, err := extender.ClientTLS(nil, cert, nil, "", false); err == nil {
		t.Error("a certificate without its key was taken")
	}
}
