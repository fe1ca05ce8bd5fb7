package cli_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
)

// TestRefusalsArePrintedBeforeTheWait applies two pods, of which the server refuses one: the refusal stands before the lines
// of the wait for the other, once, and the exit code is that of a failure although the other becomes ready.
func TestRefusalsArePrintedBeforeTheWait(t *testing.T) {
	w, url := serve(t)
	w.extra["/api/v1/namespaces/default/pods"] = func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is cut off is refused
		if r.Method == http.MethodPost && bytes.Contains(body, []byte("refused")) {
			fail(rw, apierrors.NewForbidden(client.Pods.GroupResource(), "refused", errors.New(`RuntimeClass "none" not found`)))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		w.resource(rw, r)
	}
	c := newTerminal(t, url)
	file := write(t, t.TempDir()+"/pods.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: refused}, spec: {containers: [{name: main, image: demo}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: made}, spec: {containers: [{name: main, image: demo}]}}
`)
	for _, verb := range []string{"create", "apply"} {
		c.onLine = func(s string) {
			if strings.HasPrefix(s, "waiting for pod/made") || strings.Contains(s, `"type":"progress"`) {
				p, err := client.Pods.Get(t.Context(), w.Server, "default", "made")
				if err != nil {
					t.Error(err)
					return
				}
				p = p.DeepCopy()
				isReady(p)
				w.Set(t, p)
			}
		}
		args := []string{verb, "-f", file, "--wait", "--validate=ignore", "--timeout=20s"}
		got := c.run(args...)
		refusal, wait := strings.Index(got.err, "Error from server (Forbidden)"), strings.Index(got.err, "waiting for pod/made")
		if got.code != 1 || refusal < 0 || wait < refusal || strings.Count(got.err, "Forbidden") != 1 {
			t.Errorf("%s: %+v", verb, got)
		}
		w.Remove(t, pod("made", nil))
		got = c.run(append(args, "-o", "json")...)
		note, result := strings.Index(got.out, `"type":"note"`), strings.LastIndex(got.out, "Forbidden")
		if got.code != 1 || note < 0 || strings.Index(got.out, `"type":"progress"`) < note || result < strings.Index(got.out, `"type":"result"`) {
			t.Errorf("%s -o json: %+v", verb, got)
		}
		w.Remove(t, pod("made", nil))
	}
}

// TestHintsRepeatTheNameOfTheCluster chooses a cluster with --name while the current context is that of another.
func TestHintsRepeatTheNameOfTheCluster(t *testing.T) {
	_, url := serve(t, pod("a", nil))
	c := newTerminal(t, url)
	config, err := os.ReadFile(c.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	write(t, c.kubeconfig, strings.NewReplacer("current-context: test", "current-context: other", "contexts: [{name: test,", "contexts: [{name: sampan-newc,").Replace(string(config)))
	got := c.run("wait", "pod/a", "--name=newc", "--for=ready", "--timeout=0")
	if want := "  see: sampan get --name=newc --kubeconfig=" + c.kubeconfig + " pod/a -o yaml\n"; !strings.HasSuffix(got.err, want) {
		t.Errorf("%+v\nwant %s", got, want)
	}
}

// TestRolloutStatusNeedsPods asks for the rollout of objects that have none, and gets kubectl's error.
func TestRolloutStatusNeedsPods(t *testing.T) {
	_, url := serve(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}}, pod("a", isReady))
	c := newTerminal(t, url)
	c.want(1, "", "error: no status viewer has been implemented for Service\n", "rollout", "status", "svc/x")
	c.want(1, "", "error: no status viewer has been implemented for Pod\n", "rollout", "status", "pod/a")
}
