package cli_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// commands run in the containers of a test server. Its WebSocket is too old for the client, which falls back to SPDY.
type commands func(container string, cmd []string, in io.Reader, out, errOut io.Writer) error

func (c commands) ExecInContainer(_ context.Context, _, _, container string, cmd []string, in io.Reader, out, errOut io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	return c(container, cmd, in, out, errOut)
}

func (c commands) AttachContainer(_ context.Context, _, _, container string, in io.Reader, out, errOut io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	return c(container, nil, in, out, errOut)
}

// at serves the streams of a pod.
func (c commands) at(w *wire, pod string) {
	const limit = time.Minute
	opts := func(r *http.Request) *remotecommand.Options {
		on := func(name string) bool { return r.URL.Query().Get(name) == "true" }
		return &remotecommand.Options{Stdin: on("stdin"), Stdout: on("stdout"), Stderr: on("stderr"), TTY: on("tty")}
	}
	path := "/api/v1/namespaces/default/pods/" + pod
	w.extra[path+"/exec"] = func(rw http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		remotecommand.ServeExec(rw, r, c, "", "", q.Get("container"), q["command"], opts(r), limit, limit, remotecommand.SupportedStreamingProtocols)
	}
	w.extra[path+"/attach"] = func(rw http.ResponseWriter, r *http.Request) {
		remotecommand.ServeAttach(rw, r, c, "", "", r.URL.Query().Get("container"), opts(r), limit, limit, remotecommand.SupportedStreamingProtocols)
	}
}

func TestExec(t *testing.T) {
	w, url := serve(t, pod("a", isReady), pod("two", func(p *corev1.Pod) {
		isReady(p)
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "side"})
	}), pod("done", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), pod("nowhere", func(p *corev1.Pod) { p.Spec.NodeName = "" }))
	run := commands(func(container string, cmd []string, in io.Reader, out, errOut io.Writer) error {
		switch {
		case cmd == nil:
			fmt.Fprintf(out, "attached to %s\n", container)
		case cmd[0] == "cat":
			_, err := io.Copy(out, in)
			return err
		case cmd[0] == "both":
			fmt.Fprintln(out, "out")
			fmt.Fprintln(errOut, "err")
		case cmd[0] == "false":
			return &utilexec.CodeExitError{Err: errors.New("exit 7"), Code: 7}
		default:
			fmt.Fprintln(out, container+" "+strings.Join(cmd, "|"))
		}
		return nil
	})
	run.at(w, "a")
	run.at(w, "two")
	c := newTerminal(t, url)
	c.want(0, "out\n", "err\n", "exec", "a", "--", "both")
	c.want(0, "main echo|a b|-x\n", "", "exec", "a", "--", "echo", "a b", "-x")
	c.want(0, "main echo|a||b\n", "", "exec", "a", "--", "echo", "a", "", "b")
	c.want(7, "", "command terminated with exit code 7\n", "exec", "a", "-c", "main", "--", "false")
	c.want(7, "", "", "exec", "a", "-q", "--", "false")
	c.want(0, "main echo\n", "Defaulted container \"main\" out of: main, side\n", "exec", "two", "--", "echo")
	c.want(0, "side echo\n", "", "exec", "two", "-c", "side", "--", "echo")
	c.want(1, "", "error: cannot exec into a container in a completed pod; current phase is Succeeded\n", "exec", "done", "--", "echo")
	if got := c.run("exec", "nowhere", "--", "echo"); got.code != 1 || !strings.HasPrefix(got.err, "error: pod nowhere does not have a host assigned; wait for it with 'sampan wait ") {
		t.Errorf("%+v", got)
	}
	c.want(0, "main sh\n", "Unable to use a TTY - input is not a terminal or the right kind of file\n", "exec", "-it", "a", "--", "sh")
	for _, args := range [][]string{{"exec", "a", "ls"}, {"exec", "a", "--"}, {"exec", "a", "b", "--", "ls"}} {
		if got := c.run(args...); got.code != 1 || !strings.HasPrefix(got.err, "error: ") {
			t.Errorf("%v: %+v, want a sentence and exit code 1", args, got)
		}
	}
	c.want(0, "attached to main\n", "", "attach", "a", "-q")
	c.want(0, "attached to main\n", "", "attach", "a", "-q", "--detach-keys=")
	for _, verb := range [][]string{{"attach", "a"}, {"run", "b", "--image=b", "-it"}} {
		c.want(1, "", `error: invalid argument "ctrl-p,ctrl-1" for "--detach-keys" flag: unknown key "ctrl-1": must be one ASCII character, `+
			"ctrl- with one of a-z @ [ \\ ] ^ _, or DEL, separated by commas\nusage: see 'sampan "+verb[0]+" --help'\n", append(verb, "--detach-keys=ctrl-p,ctrl-1")...)
	}
	if got := c.run("exec", "a", "--detach-keys=a", "--", "sh"); got.code != 1 || !strings.Contains(got.err, "unknown flag: --detach-keys") {
		t.Errorf("exec: %+v", got)
	}
	c.want(1, "", "error: cannot attach a container in a completed pod; current phase is Succeeded\n", "attach", "done")
	c.want(1, "", "error: unable to forward port because pod is not running. Current status=Succeeded\n", "port-forward", "done", "80")
	c.want(1, "", "error: TYPE/NAME and list of ports are required for port-forward\nusage: see 'sampan port-forward --help'\n", "port-forward", "a")
}

// TestAPodOfAServiceIsAReadyOne has a newer pod whose container crashes.
func TestAPodOfAServiceIsAReadyOne(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	service.Spec.Selector = map[string]string{"app": "web"}
	w, url := serve(t, service, pod("crash", func(p *corev1.Pod) { p.Status.Phase, p.CreationTimestamp = corev1.PodRunning, metav1.Now() }),
		pod("web", func(p *corev1.Pod) {
			isReady(p)
			p.Status.Phase, p.CreationTimestamp = corev1.PodRunning, old()
		}))
	commands(func(container string, _ []string, _ io.Reader, out, _ io.Writer) error {
		fmt.Fprintln(out, container)
		return nil
	}).at(w, "web")
	newTerminal(t, url).want(0, "main\n", "Found 2 pods, using pod/web\n", "exec", "svc/web", "--", "id")
}

// TestAttachDetaches has a container that goes on whatever its clients do, and a user with a terminal.
func TestAttachDetaches(t *testing.T) {
	w, url := serve(t, pod("a", func(p *corev1.Pod) {
		isReady(p)
		p.Spec.Containers[0].Stdin, p.Spec.Containers[0].TTY = true, true
	}))
	end, typed := make(chan struct{}), make(chan string, 1)
	t.Cleanup(func() { close(end) })
	commands(func(_ string, _ []string, in io.Reader, out, _ io.Writer) error {
		fmt.Fprintln(out, "attached")
		all, _ := io.ReadAll(in)
		typed <- string(all)
		<-end
		return nil
	}).at(w, "a")
	c := newTerminal(t, url)
	for _, tt := range []struct {
		args        []string
		types, want string
	}{
		{nil, "date\n\x10x\x10\x11", "date\n\x10x"},
		{[]string{"--detach-keys=~,."}, "\x10\x11~~.", "\x10\x11~"},
	} {
		// A process of its own, because the reader of a terminal lives as long as the program.
		s := newScreen(t, nil)
		out := &tee{on: func(text string) {
			if strings.Contains(text, "attached") {
				if _, err := io.WriteString(s.master, tt.types); err != nil {
					t.Error(err)
				}
			}
		}}
		program := exec.CommandContext(t.Context(), os.Args[0])
		program.Env = append(os.Environ(), asProgram+"="+strings.Join(append([]string{"--kubeconfig", c.kubeconfig, "attach", "a", "-it"}, tt.args...), "\n"))
		program.Stdin, program.Stdout, program.Stderr = s.slave, out, os.Stderr
		err := program.Run()
		if got := out.buf.String(); err != nil || !strings.HasPrefix(got, "attached\nSession ended, resume using 'sampan attach ") || !strings.HasSuffix(got, " a -c main -i -t' command\n") {
			t.Errorf("%v: %v, %q", tt.args, err, got)
		}
		if got := <-typed; got != tt.want {
			t.Errorf("%v: the container got %q, want %q", tt.args, got, tt.want)
		}
		s.close()
	}
}

// TestCopy has a container with tar, and one whose archives are hostile.
func TestCopy(t *testing.T) {
	w, url := serve(t, pod("a", isReady), pod("evil", isReady))
	var received bytes.Buffer
	var where string
	commands(func(_ string, cmd []string, in io.Reader, out, _ io.Writer) error {
		switch {
		case cmd[0] == "test":
			if cmd[2] == "/srv" {
				return nil
			}
			return &utilexec.CodeExitError{Err: errors.New("exit 1"), Code: 1}
		case cmd[1] == "-xmf":
			received.Reset()
			where = strings.Join(cmd, " ")
			_, err := io.Copy(&received, in)
			return err
		}
		archive := tar.NewWriter(out)
		for _, f := range []struct{ name, text string }{{"data/", ""}, {"data/one", "first"}, {"data/sub/two", "second"}} {
			h := &tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text)), Typeflag: tar.TypeReg}
			if strings.HasSuffix(f.name, "/") {
				h.Typeflag = tar.TypeDir
			}
			if err := archive.WriteHeader(h); err != nil {
				return err
			}
			fmt.Fprint(archive, f.text)
		}
		return archive.Close()
	}).at(w, "a")
	outside := filepath.Join(t.TempDir(), "outside")
	commands(func(_ string, _ []string, _ io.Reader, out, _ io.Writer) error {
		archive := tar.NewWriter(out)
		for _, h := range []*tar.Header{
			{Name: "data/link", Typeflag: tar.TypeSymlink, Linkname: filepath.Dir(outside)},
			{Name: "data/there/file", Typeflag: tar.TypeReg, Mode: 0o644, Size: 4},
		} {
			if err := archive.WriteHeader(h); err != nil {
				return err
			}
			if h.Size > 0 {
				fmt.Fprint(archive, "evil")
			}
		}
		return archive.Close()
	}).at(w, "evil")
	c := newTerminal(t, url)
	dir := t.TempDir()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	c.want(0, "", "", "cp", "a:/data", filepath.Join(dir, "got"))
	if one, two := read("got/one"), read("got/sub/two"); one != "first" || two != "second" {
		t.Errorf("copied %q and %q", one, two)
	}
	for _, tt := range []struct{ to, name, where string }{
		{"a:/srv", "got/sub/two", "tar -xmf - -C /srv"},
		{"default/a:/var/new", "new/sub/two", "tar -xmf - -C /var"},
	} {
		c.want(0, "", "", "cp", filepath.Join(dir, "got"), tt.to)
		names := map[string]bool{}
		for archive := tar.NewReader(&received); ; {
			h, err := archive.Next()
			if err != nil {
				break
			}
			names[h.Name] = true
		}
		if !names[tt.name] || where != tt.where {
			t.Errorf("to %s: %v by %q, want %s by %q", tt.to, names, where, tt.name, tt.where)
		}
	}

	// A link here that leads out of the target is not followed.
	if err := os.MkdirAll(filepath.Join(dir, "bad"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(dir, "bad", "there")); err != nil {
		t.Fatal(err)
	}
	got := c.run("cp", "evil:/data", filepath.Join(dir, "bad"))
	if _, err := os.Stat(filepath.Join(filepath.Dir(outside), "file")); err == nil || got.code == 0 {
		t.Errorf("%+v, and a file outside of the target: %v", got, err == nil)
	}
	got = c.run("cp", "evil:/other", filepath.Join(dir, "worse"))
	if got.code != 1 || !strings.Contains(got.err, "tar contents corrupted") {
		t.Errorf("%+v, want a refusal of names that were not asked for", got)
	}
	for _, args := range [][]string{{"a", "b"}, {"a:x", "a:y"}, {":x", "b"}, {"x/y/z:a", "b"}, {"a:", "b"}, {"missing", "a:/x"}} {
		if got := c.run(append([]string{"cp"}, args...)...); got.code != 1 || !strings.HasPrefix(got.err, "error: ") {
			t.Errorf("cp %v: %+v", args, got)
		}
	}
}

func TestDebug(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	w, url := serve(t, node, pod("a", func(p *corev1.Pod) {
		isReady(p)
		p.Spec.Containers[0].Image = "app"
		p.Spec.Containers[0].LivenessProbe = &corev1.Probe{}
	}))
	var patch struct {
		Spec struct{ EphemeralContainers []corev1.EphemeralContainer }
	}
	w.extra["/api/v1/namespaces/default/pods/a/ephemeralcontainers"] = func(rw http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			t.Error(err)
		}
		rw.Header().Set("Content-Type", "application/json")
		answer := pod("a", isReady)
		answer.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		_ = json.NewEncoder(rw).Encode(answer)
	}
	c := newTerminal(t, url)
	c.want(0, "Targeting container \"main\". If you don't see processes from this container it may be because the container runtime doesn't support this feature.\n", "",
		"debug", "a", "--image=busybox", "--target=main", "-c", "dbg", "--", "sleep", "1")
	e := patch.Spec.EphemeralContainers
	if len(e) != 1 || e[0].Name != "dbg" || e[0].TargetContainerName != "main" || e[0].Image != "busybox" || len(e[0].Command) != 2 ||
		e[0].SecurityContext.Capabilities.Add[0] != "SYS_PTRACE" {
		t.Errorf("patched with %+v", e)
	}
	c.want(0, "", "", "debug", "a", "--image=busybox", "--copy-to=b", "-q", "-c", "dbg", "--set-image=main=other")
	var copied corev1.Pod
	if err := json.Unmarshal([]byte(c.run("get", "pod", "b", "-o", "json").out), &copied); err != nil {
		t.Fatal(err)
	}
	s := copied.Spec
	if len(s.Containers) != 2 || s.Containers[0].Image != "other" || s.Containers[0].LivenessProbe != nil || s.NodeName != "" || copied.Labels != nil ||
		s.ShareProcessNamespace == nil || !*s.ShareProcessNamespace {
		t.Errorf("the copy is %+v with labels %v", s, copied.Labels)
	}
	got := c.run("debug", "node/n1", "--image=busybox", "--profile=sysadmin")
	if got.code != 0 || !strings.HasPrefix(got.out, "Creating debugging pod node-debugger-n1-") {
		t.Fatalf("%+v", got)
	}
	name := strings.Fields(got.out)[3]
	var debugger corev1.Pod
	if err := json.Unmarshal([]byte(c.run("get", "pod", name, "-o", "json").out), &debugger); err != nil {
		t.Fatal(err)
	}
	if s := debugger.Spec; !s.HostPID || s.NodeName != "n1" || s.Containers[0].VolumeMounts[0].MountPath != "/host" || !*s.Containers[0].SecurityContext.Privileged {
		t.Errorf("the pod on the node is %+v", debugger.Spec)
	}
	for want, args := range map[string][]string{
		"you must specify --image when not using --copy-to.":                          {"a"},
		"--replace may only be used with --copy-to.":                                  {"a", "--replace", "--image=x"},
		"--target is incompatible with --copy-to. Use --share-processes instead.":     {"a", "--image=x", "--copy-to=c", "--target=main"},
		"-i/--stdin is required for containers with -t/--tty=true":                    {"a", "--image=x", "-t"},
		"unknown profile: none":                                                       {"a", "--image=x", "--profile=none"},
		"you must specify --image, --set-image or command arguments.":                 {"a", "--copy-to=c"},
		"you must specify an existing container or a new image when specifying args.": {"a", "--copy-to=c", "--", "sh"},
	} {
		c.want(1, "", "error: "+want+"\nusage: see 'sampan debug --help'\n", append([]string{"debug"}, args...)...)
	}
}

func TestTop(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.Allocatable = corev1.ResourceList{"cpu": quantity("2"), "memory": quantity("1Gi")}
	w, url := serve(t, node, pod("a", isReady))
	text := func(body string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(rw, body)
		}
	}
	c := newTerminal(t, url)
	w.extra["/apis/metrics.k8s.io/v1beta1/nodes"] = http.NotFound
	c.want(1, "", "error: Metrics API not available\n", "top", "nodes")
	w.extra["/apis/metrics.k8s.io/v1beta1/nodes"] = text(`{"items": [{"metadata": {"name": "n1"}, "usage": {"cpu": "500m", "memory": "256Mi"}}]}`)
	w.extra["/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"] = text(`{"items": [
		{"metadata": {"name": "a"}, "containers": [{"name": "x", "usage": {"cpu": "10m", "memory": "8Mi"}}, {"name": "y", "usage": {"cpu": "5m", "memory": "1Mi"}}]},
		{"metadata": {"name": "b"}, "containers": [{"name": "x", "usage": {"cpu": "90m", "memory": "2Mi"}}]}]}`)
	c.want(0, "NAME   CPU(cores)   CPU(%)   MEMORY(bytes)   MEMORY(%)   \nn1     500m         25%      256Mi           25%         \n", "", "top", "nodes")
	c.want(0, "NAME   CPU(cores)   MEMORY(bytes)   \nb      90m          2Mi             \na      15m          9Mi             \n", "", "top", "pods", "--sort-by=cpu")
	c.want(0, "a     x     10m   8Mi   \na     y     5m    1Mi   \nb     x     90m   2Mi   \n", "", "top", "pods", "--containers", "--no-headers")
	c.want(1, "", "error: --sort-by accepts only cpu or memory\nusage: see 'sampan top pods --help'\n", "top", "pods", "--sort-by=x")
}

func quantity(text string) resource.Quantity { return resource.MustParse(text) }
