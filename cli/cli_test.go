package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/cli"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/leaktest"
)

// asProgram is the variable with the command line that the test program is to run, when it
// stands for the program itself: one argument per line.
const asProgram = "SAMPAN_TEST_COMMAND_LINE"

func TestMain(m *testing.M) {
	if line := os.Getenv(asProgram); line != "" {
		os.Exit(cli.Main(context.Background(), strings.Split(line, "\n"), cli.Options{}))
	}
	// Idle connections of HTTP clients that live as long as a command does.
	leaktest.Main(m,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("net/http.(*http2clientConnReadLoop).run"),
	)
}

// A terminal runs command lines against one server.
type terminal struct {
	t          *testing.T
	kubeconfig string
	in         string
	onLine     func(string) // called with each write to either stream
}

type result struct {
	code     int
	out, err string
}

func newTerminal(t *testing.T, url string) *terminal {
	path := filepath.Join(t.TempDir(), "config")
	write(t, path, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: %q}}]
users: [{name: test, user: {}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
`, url))
	return &terminal{t: t, kubeconfig: path}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

type tee struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
	on  func(string)
}

func (w *tee) Write(b []byte) (int, error) {
	w.mu.Lock()
	n, err := w.buf.Write(b)
	w.mu.Unlock()
	if w.on != nil {
		w.on(string(b))
	}
	return n, err
}

func (c *terminal) run(args ...string) result {
	c.t.Helper()
	return c.runIn(c.t.Context(), args...)
}

func (c *terminal) runIn(ctx context.Context, args ...string) result {
	out, errs := &tee{on: c.onLine}, &tee{on: c.onLine}
	code := cli.Main(ctx, append([]string{"--kubeconfig", c.kubeconfig}, args...), cli.Options{
		Version: "v0", In: strings.NewReader(c.in), Out: out, Err: errs,
	})
	return result{code, out.buf.String(), errs.buf.String()}
}

func (c *terminal) want(code int, out, errs string, args ...string) {
	c.t.Helper()
	got := c.run(args...)
	if got.code != code || got.out != out || got.err != errs {
		c.t.Errorf("sampan %s: exit code %d\nstdout:\n%sstderr:\n%swant %d\nstdout:\n%sstderr:\n%s",
			strings.Join(args, " "), got.code, got.out, got.err, code, out, errs)
	}
}

const webYAML = `# two objects
apiVersion: v1
kind: ReplicationController
metadata: {name: web}
spec:
  replicas: 3
  selector: {app: web}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: demo}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
`

func pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}}}
	p.Spec.Containers = []corev1.Container{{Name: "main"}}
	p.Spec.NodeName = "n1"
	if change != nil {
		change(p)
	}
	if p.Spec.NodeName != "" && len(p.Status.Conditions) == 0 { // a scheduler has bound it
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	}
	return p
}

// old is when an object was made whose age is shown as 4d4h.
func old() metav1.Time { return metav1.NewTime(time.Now().Add(-100 * time.Hour)) }

func isOld(p *corev1.Pod) { p.CreationTimestamp = old() }

func isReady(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func TestCreate(t *testing.T) {
	w, url := serve(t)
	c := newTerminal(t, url)
	file := write(t, filepath.Join(t.TempDir(), "web.yaml"), webYAML)
	c.want(0, "replicationcontroller/web created (dry run)\nservice/web created (dry run)\n", "", "create", "-f", file, "--dry-run=client")
	c.want(0, "replicationcontroller/web created (server dry run)\nservice/web created (server dry run)\n", "", "create", "-f", file, "--dry-run=server")
	c.want(0, "replicationcontroller/web created\nservice/web created\n", "", "create", "-f", file)
	if rc := clienttest.Find(w.Server, client.ReplicationControllers, "default", "web"); rc == nil || *rc.Spec.Replicas != 3 {
		t.Errorf("the server has %+v", rc)
	}
	c.want(1, "", fmt.Sprintf("Error from server (AlreadyExists): %s, document 1 (line 1): replicationcontrollers \"web\" already exists\n", file)+
		fmt.Sprintf("Error from server (AlreadyExists): %s, document 2 (line 11): services \"web\" already exists\n", file), "create", "-f", file)
	c.in = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"conf-"}}`
	if got := c.run("create", "-f", "-", "-o", "name"); got.code != 0 || !strings.HasPrefix(got.out, "configmap/conf-") {
		t.Errorf("create -o name: %+v", got)
	}
}

func TestWhatTheServerWarnsOfIsSaidOnce(t *testing.T) {
	w, url := serve(t)
	c := newTerminal(t, url)
	w.extra["/api/v1/namespaces/default/configmaps"] = func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Add("Warning", `299 - "unknown field \"colour\""`)
		w.resource(rw, r)
	}
	c.in = "{kind: ConfigMap, apiVersion: v1, metadata: {name: a}}\n---\n{kind: ConfigMap, apiVersion: v1, metadata: {name: b}}\n"
	c.want(0, "configmap/a created\nconfigmap/b created\n", "Warning: unknown field \"colour\"\n", "create", "-f", "-")
}

func TestOneBadDocumentDoesNotHideTheOthers(t *testing.T) {
	_, url := serve(t)
	c := newTerminal(t, url)
	c.in = "apiVersion: v1\nkind: Boat\nmetadata: {name: a}\n---\nkind: [\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: good}\n"
	c.want(1, "configmap/good created\n", "error: standard input, document 1 (line 1): no matches for kind \"Boat\" in version \"v1\": the server does not serve it; check both\n"+
		"error: standard input, document 2 (line 4): YAML: line 5: did not find expected node content\n", "create", "-f", "-")
}

func TestGet(t *testing.T) {
	three := int32(3)
	_, url := serve(
		t, pod("b", isOld), pod("a", func(p *corev1.Pod) { isOld(p); isReady(p) }),
		&corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", CreationTimestamp: old()}, Spec: corev1.ReplicationControllerSpec{Replicas: &three}},
	)
	c := newTerminal(t, url)
	c.want(0, "NAME   READY   STATUS    RESTARTS   AGE\na      0/1     Running   0          4d4h\nb      0/1               0          4d4h\n", "", "get", "pods")
	c.want(0, "a     0/1   Running   0     4d4h\nb     0/1             0     4d4h\n", "", "get", "po", "-l", "app=web", "--no-headers")
	c.want(0, "NAME   DESIRED   CURRENT   READY   AGE    CONTAINERS   IMAGES   SELECTOR\nweb    3         0         0       4d4h                         <none>\n", "", "get", "rc/web", "-o", "wide")
	c.want(0, "NAMESPACE   NAME   READY   STATUS    RESTARTS   AGE\ndefault     a      0/1     Running   0          4d4h\ndefault     b      0/1               0          4d4h\n", "", "get", "pod", "-A")
	c.want(0, "NAME    READY   STATUS    RESTARTS   AGE\npod/a   0/1     Running   0          4d4h\n\nNAME                        DESIRED   CURRENT   READY   AGE\nreplicationcontroller/web   3         0         0       4d4h\n", "", "get", "pod/a", "rc/web")
	c.want(0, "NAME   READY   STATUS    RESTARTS   AGE    APP   TIER   LABELS\na      0/1     Running   0          4d4h   web          app=web\nb      0/1               0          4d4h   web          app=web\n", "", "get", "pods", "-L", "app,example.com/tier", "--show-labels")
	c.want(0, "NAME    READY   STATUS    RESTARTS   AGE\npod/a   0/1     Running   0          4d4h\npod/b   0/1               0          4d4h\n", "", "get", "pods", "--show-kind")
	c.want(0, "pod/a\npod/b\n", "", "get", "pods", "-o", "name")
	c.want(0, "3", "", "get", "rc", "web", "-o", "jsonpath={.spec.replicas}")
	c.want(0, "NAME   N\nweb    3\n", "", "get", "rc", "-o", "custom-columns=NAME:.metadata.name,N:.spec.replicas")
	c.want(0, "pod/b\npod/a\n", "", "get", "pods", "-o", "name", "--sort-by", "{.status.phase}")
	c.want(4, "", "Error from server (NotFound): pods \"x\" not found\n", "get", "pod", "x")
	c.want(0, "", "", "get", "pod", "x", "--ignore-not-found")
	c.want(0, "", "No resources found in default namespace.\n", "get", "cm")
	c.want(1, "", "error: the server doesn't have a resource type \"boats\"\n", "get", "boats")
	if got := c.run("get", "rc", "-o", "json"); !strings.Contains(got.out, `"kind": "List"`) {
		t.Errorf("get -o json is no List:\n%s", got.out)
	}
	if got := c.run("get", "rc", "web", "-o", "yaml"); !strings.HasPrefix(got.out, "apiVersion: v1\nkind: ReplicationController\n") {
		t.Errorf("get -o yaml:\n%s", got.out)
	}
}

func TestGetWatches(t *testing.T) {
	w, url := serve(t, pod("a", isOld))
	c := newTerminal(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	c.onLine = func(s string) {
		seen++
		switch {
		case strings.HasPrefix(s, "b "):
			cancel()
		case seen == 1:
			w.Set(t, pod("b", isOld))
		}
	}
	if got := c.runIn(ctx, "get", "pods", "-w"); got.code != 130 || got.out != "NAME   READY   STATUS   RESTARTS   AGE\na      0/1              0          4d4h\nb      0/1              0          4d4h\n" {
		t.Errorf("get -w: %+v", got)
	}
}

// TestGetWatchContinuesUntilItExpires has a server that ends the watch, which then continues without a new list, and later
// has forgotten its history.
func TestGetWatchContinuesUntilItExpires(t *testing.T) {
	for _, output := range []struct {
		flags []string
		want  string
	}{
		{nil, "NAME   READY   STATUS   RESTARTS   AGE\na      0/1              0          4d4h\nb      0/1              0          4d4h\nc      0/1              0          4d4h\n"},
		{[]string{"-o=name"}, "pod/a\npod/b\npod/c\n"},
	} {
		w, url := serve(t, pod("a", isOld))
		watches := make(chan context.CancelFunc, 3) // ends each
		var served atomic.Int32
		w.extra["/api/v1/namespaces/default/pods"] = func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") == "" {
				w.resource(rw, r)
				return
			}
			if served.Add(1) == 3 {
				fail(rw, apierrors.NewResourceExpired("too old resource version"))
				return
			}
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			watches <- cancel
			w.resource(rw, r.WithContext(ctx))
		}
		c := newTerminal(t, url)
		writes := 0
		c.onLine = func(string) {
			switch writes++; writes {
			case 1:
				w.Set(t, pod("b", isOld))
			case 2:
				(<-watches)()
				w.Set(t, pod("c", isOld))
			case 3:
				(<-watches)()
			}
		}
		got := c.runIn(t.Context(), append([]string{"get", "pods", "-w"}, output.flags...)...)
		if got.code != 1 || got.out != output.want || !strings.Contains(got.err, "too old resource version") {
			t.Errorf("get -w %q: %+v", output.flags, got)
		}
	}
}

func TestDelete(t *testing.T) {
	w, url := serve(t, pod("a", nil), pod("b", nil), pod("c", nil))
	c := newTerminal(t, url)
	c.want(0, "pod \"a\" deleted from default namespace (dry run)\n", "", "delete", "pod/a", "--dry-run=client")
	c.want(4, "", "Error from server (NotFound): pods \"x\" not found\n", "delete", "pod", "x")
	c.want(0, "", "", "delete", "pod", "x", "--ignore-not-found")
	c.want(1, "", "error: --cascade=maybe: want background, foreground or orphan\nusage: see 'sampan delete --help'\n", "delete", "pod", "a", "--cascade=maybe")
	got := c.run("delete", "pod", "a", "--force")
	if got.code != 0 || got.out != "pod \"a\" force deleted from default namespace\n" || !strings.HasPrefix(got.err, "Warning: ") {
		t.Errorf("delete --force: %+v", got)
	}
	// A pod that takes its time: delete returns when it is gone, not before.
	gone := false
	c.onLine = func(s string) {
		if strings.Contains(s, `"b" deleted`) {
			gone = true
			w.Remove(t, pod("b", nil))
		}
	}
	c.want(0, "pod \"b\" deleted from default namespace\n", "", "delete", "pod/b", "--timeout=20s")
	if !gone || clienttest.Find(w.Server, client.Pods, "default", "b") != nil {
		t.Error("delete did not wait")
	}
	c.onLine = nil
	c.want(0, "pod/c\n", "", "delete", "pods", "-l", "app=web", "-o", "name", "--wait=false")
	if p := clienttest.Find(w.Server, client.Pods, "default", "c"); p == nil || p.DeletionTimestamp == nil {
		t.Errorf("c is %v, want it being deleted", p)
	}
}

func TestWait(t *testing.T) {
	w, url := serve(t, pod("a", nil), pod("b", isReady))
	c := newTerminal(t, url)
	c.want(0, "pod/b is ready\n", "", "wait", "pod/b", "--for=ready")
	c.want(0, "pod/b condition met\n", "", "wait", "pod/b", "--for=condition=Ready")
	c.want(0, "pod/b condition met\n", "", "wait", "pod", "b", "--for=jsonpath={.status.phase}=Running")
	c.want(3, "", "waiting for pod/a to be ready: starting on node n1\nerror: timed out waiting for pod/a to be ready: starting on node n1\n  see: sampan get --kubeconfig="+c.kubeconfig+" pod/a -o yaml\n", "wait", "pod/a", "--for=ready", "--timeout=0")
	c.want(4, "", "Error from server (NotFound): pods \"x\" not found\n", "wait", "pod/x", "--for=ready")
	c.want(4, "", "error: no matching resources found\n", "wait", "pod", "-l", "app=none", "--for=ready")
	c.want(0, "pod/x condition met\n", "", "wait", "pod/x", "--for=delete")
	c.onLine = func(s string) {
		if strings.HasPrefix(s, "waiting for pod/a") {
			w.Set(t, pod("a", isReady))
		}
	}
	c.want(0, "pod/b is ready\npod/a is ready\n", "waiting for pod/a to be ready: starting on node n1\npod/a no longer counts\n", "wait", "pods", "--all", "--for=ready")
	c.onLine = nil
	w.Set(t, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "build"}, Status: batchv1.JobStatus{
		Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: "True", Reason: "BackoffLimitExceeded"}},
	}})
	if got := c.run("wait", "job/build", "--for=finished"); got.code != 2 || !strings.Contains(got.err, "error: job.batch/build failed: BackoffLimitExceeded") {
		t.Errorf("wait for a failed job: %+v", got)
	}
	for _, args := range [][]string{
		{"wait", "pod/a"},
		{"wait", "pod/a", "--for=redy"},
		{"wait", "--for=ready"},
		{"wait", "pod", "--for=ready"},
		{"wait", "pod/a", "--for=ready", "--fail=maybe"},
		{"wait", "rc/x/y", "--for=ready"},
	} {
		if got := c.run(args...); got.code != 1 || !strings.HasPrefix(got.err, "error: ") {
			t.Errorf("%v: %+v, want a sentence and exit code 1", args, got)
		}
	}
}

func TestWaitIsInterrupted(t *testing.T) {
	_, url := serve(t, pod("a", nil))
	c := newTerminal(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	c.onLine = func(string) { cancel() }
	if got := c.runIn(ctx, "wait", "pod/a", "--for=ready"); got.code != 130 {
		t.Errorf("an interrupted wait: %+v, want exit code 130", got)
	}
}

func TestScale(t *testing.T) {
	three := int32(3)
	w, url := serve(t, &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ReplicationControllerSpec{Replicas: &three},
	})
	c := newTerminal(t, url)
	c.want(1, "", "error: Expected replicas to be 2, was 3\n", "scale", "rc/web", "--replicas=5", "--current-replicas=2")
	c.want(0, "replicationcontroller/web scaled\n", "", "scale", "--replicas", "5", "rc", "web", "--current-replicas=3")
	if n := *clienttest.Find(w.Server, client.ReplicationControllers, "default", "web").Spec.Replicas; n != 5 {
		t.Errorf("it has %d replicas, want 5", n)
	}
	c.want(1, "", "error: the --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0\nusage: see 'sampan scale --help'\n", "scale", "rc/web")
	c.want(4, "", "Error from server (NotFound): replicationcontrollers \"x\" not found\n", "scale", "rc/x", "--replicas=1")
}

func TestLogs(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "build", UID: "job"}}
	job.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	of := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, client.Jobs.GVK())}
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	service.Spec.Selector = map[string]string{"app": "web"}
	headless := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}}
	unused := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "unused"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "none"}}}
	w, url := serve(t, job, service, headless, unused, pod("build-x", of), pod("two", func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "side"})
	}))
	for _, p := range []string{"build-x", "two"} {
		w.extra["/api/v1/namespaces/default/pods/"+p+"/log"] = func(rw http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(rw, "%s\n", r.URL.RawQuery)
		}
	}
	c := newTerminal(t, url)
	c.want(0, "container=main\n", "", "logs", "job/build")
	c.want(0, "container=main\n", "Found 2 pods, using pod/build-x\n", "logs", "svc/web")
	c.want(1, "", "error: service/kubernetes does not select pods: must be a pod, or an object with a pod selector\n", "logs", "svc/kubernetes")
	if got := c.run("logs", "svc/unused"); got.code != 4 || !strings.HasSuffix(got.err, " service/unused --for=ready'\n") {
		t.Errorf("logs of a service without pods: exit code %d, %s, want 4 and a wait that services have", got.code, got.err)
	}
	c.want(0, "container=main&tailLines=5&timestamps=true\n", "", "logs", "build-x", "--tail=5", "--timestamps")
	c.want(0, "container=main&previous=true&sinceSeconds=120\n", "", "logs", "pod/build-x", "--previous", "--since=2m")
	c.want(0, "container=main\n", "Defaulted container \"main\" out of: main, side\n", "logs", "two")
	c.want(0, "container=side\n", "", "logs", "two", "-c", "side")
	c.want(0, "[pod/two/main] container=main\n[pod/two/side] container=side\n", "", "logs", "two", "--all-containers", "--prefix")
	c.want(1, "", "error: container x is not valid for pod two: it has main, side\n", "logs", "two", "-c", "x")
	c.want(4, "", "Error from server (NotFound): pods \"none\" not found\n", "logs", "none")
	got := c.run("logs", "-l", "app=web", "-f", "--all-containers")
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	slices.Sort(lines)
	if got.code != 0 || len(lines) != 3 || lines[2] != "container=side&follow=true&tailLines=10" {
		t.Errorf("logs -f of several: %+v", got)
	}
}

func TestVersion(t *testing.T) {
	_, url := serve(t)
	c := newTerminal(t, url)
	c.want(0, "sampan v0\nserver v1.37.0\n", "", "version")
	c.want(0, "sampan v0\n", "", "version", "--client")
	got := c.run("version", "-o", "json")
	for _, want := range []string{`"clientVersion": {`, `"gitVersion": "v0"`, `"serverVersion": {`, `"gitVersion": "v1.37.0"`} {
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("version -o json: %+v, want %s in it", got, want)
		}
	}
	c.want(1, "", "error: -o name: must be json or yaml\nusage: see 'sampan version --help'\n", "version", "-o", "name")
	c.kubeconfig = write(t, filepath.Join(t.TempDir(), "empty"), "")
	c.want(0, "sampan v0\n", "", "version")
}

func TestWrongUseIsOneSentence(t *testing.T) {
	_, url := serve(t)
	c := newTerminal(t, url)
	dir := t.TempDir()
	secret := write(t, filepath.Join(dir, "secret"), webYAML)
	empty := write(t, filepath.Join(dir, "empty.yaml"), "# nothing\n---\n")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"no-such-verb"}, "unknown command \"no-such-verb\" for \"sampan\""},
		{[]string{"help", "no-such-verb"}, "unknown help topic \"no-such-verb\""},
		{[]string{"completion", "no-such-shell"}, "unknown command \"no-such-shell\" for \"sampan completion\""},
		{[]string{"get", "--no-such-flag"}, "unknown flag: --no-such-flag"},
		{[]string{"get"}, "you must provide one or more resources"},
		{[]string{"get", "pods", "-o", "pdf"}, "unable to match a printer suitable for the output format \"pdf\""},
		{[]string{"create"}, "must specify one of -f and -k"},
		{[]string{"create", "-f", dir + "/none.yaml"}, "does not exist"},
		{[]string{"create", "-f", t.TempDir()}, "recognized file extensions are [.json .yaml .yml]"},
		{[]string{"create", "-f", "https:///a.yaml"}, "the URL has no host"},
		{[]string{"create", "-f", empty}, "no objects passed to create"},
		{[]string{"apply", "-f", empty}, "no objects passed to apply"},
		{[]string{"rolling-update", "web", "-f", empty}, "no objects passed to rolling-update"},
		{[]string{"create", "-f", secret, "-n", "other", "--validate=maybe"}, "must be strict, warn or ignore"},
		{[]string{"get", "pods", "--context", "none"}, "the kubeconfig has no context \"none\""},
		{[]string{"get", "pod", "pod/a"}, "there is no need to give a type"},
		{[]string{"delete", "pods"}, "no name was specified"},
		{[]string{"delete", "pod", "a", "--all"}, "name cannot be provided when a selector is specified"},
		{[]string{"image", "list"}, "the container runtime of cluster"},
	} {
		args := slices.Concat([]string{"--context", "test"}, tt.args, []string{"--data-dir", dir, "--name", "test-none"})
		got := c.run(args...)
		first, _, _ := strings.Cut(got.err, "\n")
		if got.code != 1 || got.out != "" || !strings.HasPrefix(first, "error: ") || !strings.Contains(first, tt.want) {
			t.Errorf("sampan %s: %+v, want exit code 1 and %q", strings.Join(tt.args, " "), got, tt.want)
		}
	}
}

func TestAServerThatIsNotThere(t *testing.T) {
	c := newTerminal(t, "http://127.0.0.1:1")
	got := c.run("get", "pods")
	if got.code != 1 || !strings.Contains(got.err, "refused the connection") || !strings.Contains(got.err, "sampan up") {
		t.Errorf("get: %+v, want a sentence that says what to do", got)
	}
	const two = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
	got = c.run("create", "-f", write(t, filepath.Join(t.TempDir(), "two.yaml"), two))
	if got.code != 1 || strings.Count(got.err, "refused the connection") != 1 {
		t.Errorf("create of two: %+v, want to be told once", got)
	}
	c.kubeconfig = filepath.Join(t.TempDir(), "none")
	if got := c.run("get", "pods"); got.code != 1 || !strings.HasPrefix(got.err, "error: ") {
		t.Errorf("without a kubeconfig: %+v", got)
	}
}
