package cli_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

func configMaps(n int) (objs []client.Object) {
	for i := range n {
		objs = append(objs, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("c%d", i)}})
	}
	return objs
}

func TestGetReadsListsInChunks(t *testing.T) {
	w, url := serve(t, configMaps(5)...)
	var asked []string
	const path = "/api/v1/namespaces/default/configmaps"
	w.extra[path] = func(rw http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("limit"))
		w.resource(rw, r)
	}
	c := newTerminal(t, url)
	for _, output := range []string{"name", ""} {
		asked = nil
		args := []string{"get", "cm", "--chunk-size=2", "--no-headers"}
		if output != "" {
			args = append(args, "-o", output)
		}
		if got := c.run(args...); got.code != 0 || strings.Count(got.out, "\n") != 5 || strings.Join(asked, " ") != "2 2 2" {
			t.Errorf("%v: %+v, limits %v", args, got, asked)
		}
	}
	asked = nil
	if got := c.run("get", "cm", "--chunk-size=0"); got.code != 0 || strings.Join(asked, " ") != "" || len(asked) != 1 {
		t.Errorf("%+v, limits %v", got, asked)
	}
	c.want(1, "", "error: --chunk-size=-1: want 0 or more\n", "get", "cm", "--chunk-size=-1")
}

// TestGetBeginsAgainWhenAListExpires has the token of the second part expire.
func TestGetBeginsAgainWhenAListExpires(t *testing.T) {
	w, url := serve(t, configMaps(3)...)
	w.extra["/api/v1/namespaces/default/configmaps"] = func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("continue") != "" {
			answer(rw, http.StatusGone, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonExpired, Code: http.StatusGone})
			return
		}
		w.resource(rw, r)
	}
	c := newTerminal(t, url)
	c.want(0, "configmap/c0\nconfigmap/c1\nconfigmap/c2\n", "", "get", "cm", "--chunk-size=2", "-o", "name")
}

func TestGetPrintsSubresources(t *testing.T) {
	_, url := serve(t, webController("web", 3))
	c := newTerminal(t, url)
	c.want(0, "autoscaling/v1 3", "", "get", "rc/web", "--subresource=scale", "-o", "jsonpath={.apiVersion} {.spec.replicas}")
	c.want(1, "", "error: subresource cannot be used when bulk resources are specified\n", "get", "rc", "--subresource=scale")
	c.want(1, "", "error: --subresource=a/b: must be the name of a subresource, such as status\n", "get", "rc/web", "--subresource=a/b")
}

func TestGetKYAML(t *testing.T) {
	_, url := serve(t, configMaps(1)...)
	c := newTerminal(t, url)
	got := c.run("get", "cm/c0", "-o", "kyaml")
	if want := "---\n{\n  apiVersion: \"v1\",\n  kind: \"ConfigMap\",\n  metadata: {\n    creationTimestamp: "; got.code != 0 || !strings.HasPrefix(got.out, want) {
		t.Errorf("%+v\nwant %s", got, want)
	}
}

func TestGoTemplatesNameKubectl(t *testing.T) {
	c := &terminal{t: t, kubeconfig: t.TempDir() + "/none"}
	const want = "Go templates are not supported: use -o jsonpath=… or custom-columns=…, or 'kubectl get … -o go-template=…', which works with the same kubeconfig\n"
	c.want(1, "", "error: -o go-template: "+want, "get", "cm", "-o", "go-template={{.x}}")
	if got := c.run("get", "cm", "--template={{.x}}"); got.code != 1 || !strings.Contains(got.err, want) {
		t.Errorf("%+v", got)
	}
}

// TestGetSeparatesDocumentsOfWatches compares with kubectl, which writes --- between documents and not before the first.
func TestGetSeparatesDocumentsOfWatches(t *testing.T) {
	for _, args := range [][]string{{}, {"--output-watch-events"}} {
		w, url := serve(t, dayOld(0))
		c := newTerminal(t, url)
		ctx, cancel := context.WithCancel(t.Context())
		c.onLine = func(text string) {
			switch {
			case strings.Contains(text, "---"):
				cancel()
			case strings.Contains(text, "kind: ConfigMap"):
				w.Set(t, dayOld(1))
			}
		}
		got := c.runIn(ctx, append([]string{"get", "cm/c0", "-w", "-o", "yaml"}, args...)...)
		if strings.HasPrefix(got.out, "---") || strings.Count(got.out, "\n---\n") != 1 {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

func TestGetPrintsEventsOfWatches(t *testing.T) {
	for output, want := range map[string]string{
		"":                                 "EVENT      NAME   DATA   AGE\nADDED      c0     0      25h\nMODIFIED   c0     1      25h\nDELETED    c0     1      25h\n",
		"name":                             "configmap/c0\nconfigmap/c0\nconfigmap/c0\n",
		"jsonpath={.type}":                 "ADDEDMODIFIEDDELETED",
		"jsonpath={.object.metadata.name}": "c0c0c0",
		"custom-columns=T:.type,N:.object.metadata.name": "T       N\nADDED   c0\nMODIFIED   c0\nDELETED   c0\n",
	} {
		w, url := serve(t, dayOld(0))
		c := newTerminal(t, url)
		ctx, cancel := context.WithCancel(t.Context())
		writes := 0
		c.onLine = func(string) {
			switch writes++; writes {
			case 1:
				w.Set(t, dayOld(1))
			case 2:
				w.Remove(t, dayOld(1))
			case 3:
				cancel()
			}
		}
		args := []string{"get", "cm", "-w", "--output-watch-events"}
		if output != "" {
			args = append(args, "-o", output)
		}
		if got := c.runIn(ctx, args...); got.out != want {
			t.Errorf("-o %q: %+v\nwant\n%s", output, got, want)
		}
	}
	w, url := serve(t, dayOld(0))
	c := newTerminal(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	c.onLine = func(text string) {
		switch {
		case strings.Contains(text, `{"type":"ADDED","object":{`):
			w.Remove(t, dayOld(0))
		case strings.Contains(text, `{"type":"DELETED"`):
			cancel()
		}
	}
	got := c.runIn(ctx, "get", "cm/c0", "-w", "--output-watch-events", "-o", "json")
	if strings.Count(got.out, "\n") != 2 || strings.Count(got.out, `"kind":"ConfigMap"`) != 2 {
		t.Errorf("%+v", got)
	}
	c.want(1, "", "error: --output-watch-events option can only be used with --watch or --watch-only\n", "get", "cm", "--output-watch-events")
}

// dayOld returns a ConfigMap of yesterday, with n values.
func dayOld(n int) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c0"}}
	m.CreationTimestamp = metav1.NewTime(time.Now().Add(-25 * time.Hour))
	for i := range n {
		m.Data = map[string]string{fmt.Sprint(i): ""}
	}
	return m
}

func TestReplaceForce(t *testing.T) {
	w, url := serve(t, dayOld(0))
	c := newTerminal(t, url)
	c.in = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c0","resourceVersion":"1","uid":"x"},"data":{"a":"b"}}
{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c1"}}`
	c.want(0, "configmap \"c0\" deleted from default namespace\nconfigmap/c0 replaced\nconfigmap/c1 replaced\n", "", "replace", "--force", "-f", "-")
	if m := clienttest.Find(w.Server, client.ConfigMaps, "default", "c0"); m == nil || m.Data["a"] != "b" {
		t.Errorf("c0 is %v, want the new one", m)
	}
	refused := false
	w.extra["/api/v1/namespaces/default/configmaps"] = func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && !refused {
			refused = true
			fail(rw, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "c0", errors.New("no")))
			return
		}
		w.resource(rw, r)
	}
	c.in = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c0"},"data":{"a":"c"}}`
	got := c.run("replace", "--force", "-f", "-")
	if got.code != 1 || !strings.Contains(got.err, "the old object was restored, because the new one could not be created: ") {
		t.Errorf("%+v", got)
	}
	if m := clienttest.Find(w.Server, client.ConfigMaps, "default", "c0"); m == nil || m.Data["a"] != "b" {
		t.Errorf("c0 is %v, want the old one", m)
	}
	for args, want := range map[string]string{
		"--grace-period=1":             "--grace-period must have --force specified",
		"--timeout=1s":                 "--timeout must have --force or --wait specified",
		"--force --dry-run=client":     "--dry-run can not be used when --force is set",
		"--force --subresource=status": "--subresource can not be used when --force is set",
		"--force --cascade=maybe":      "--cascade=maybe: want background, foreground or orphan",
		"--force --timeout=-1s":        "--timeout=-1s: want 0 or more",
	} {
		c.want(1, "", "error: "+want+"\nusage: see 'sampan replace --help'\n", append([]string{"replace", "-f", "-"}, strings.Fields(args)...)...)
	}
}
