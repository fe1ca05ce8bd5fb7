package node_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	criexec "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/sampan-io/sampan/internal/inprocess"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/simulation/simulated"
)

// streamed is a runtime whose streams are upstream's.
type streamed struct {
	criclient.Runtime
	server    streaming.Server
	forwarded chan<- string // sandboxes of port-forwards
}

func (s streamed) Exec(_ context.Context, req *cri.ExecRequest) (string, error) {
	if len(req.GetCmd()) == 1 && req.GetCmd()[0] == "gone" {
		return "", status.Error(codes.NotFound, "the container is gone")
	}
	r, err := s.server.GetExec(req)
	return r.GetUrl(), err
}

func (s streamed) Attach(_ context.Context, req *cri.AttachRequest) (string, error) {
	r, err := s.server.GetAttach(req)
	return r.GetUrl(), err
}

func (s streamed) PortForward(_ context.Context, req *cri.PortForwardRequest) (string, error) {
	r, err := s.server.GetPortForward(req)
	s.forwarded <- req.GetPodSandboxId()
	return r.GetUrl(), err
}

// processes are what streams of the runtime reach.
type processes struct{}

func (processes) Exec(_ context.Context, _ string, cmd []string, in io.Reader, out, _ io.WriteCloser, tty bool, _ <-chan criexec.TerminalSize) error {
	if cmd[0] == "fail" {
		return &utilexec.CodeExitError{Err: errors.New("exit 7"), Code: 7}
	}
	fmt.Fprintf(out, "%v tty=%v ", cmd, tty)
	if in != nil {
		_, err := io.Copy(out, in)
		return err
	}
	return nil
}

func (processes) Attach(_ context.Context, _ string, _ io.Reader, out, _ io.WriteCloser, tty bool, _ <-chan criexec.TerminalSize) error {
	_, err := fmt.Fprintf(out, "attached tty=%v", tty)
	return err
}

func (processes) PortForward(_ context.Context, _ string, _ int32, stream io.ReadWriteCloser) error {
	return stream.Close()
}

// streamRig is a rig whose agent serves the streams of a runtime.
type streamRig struct {
	*rig
	plain     *simulated.Runtime // what the agent's runtime does apart from streams
	cfg       *rest.Config       // of the API server
	transport *http.Transport    // of the same
	forwarded chan string        // sandboxes of port-forwards
}

// newStreamRig returns a rig whose agent runs until the test ends.
func newStreamRig(t *testing.T) *streamRig {
	r := &streamRig{rig: newRig(t), forwarded: make(chan string, 1)}
	ca := newAuthority(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := streaming.DefaultConfig
	back := httptest.NewUnstartedServer(nil)
	config.BaseURL = &url.URL{Scheme: "http", Host: back.Listener.Addr().String(), Path: "/"}
	server, err := streaming.NewServer(config, processes{})
	if err != nil {
		t.Fatal(err)
	}
	back.Config.Handler = server
	back.Start()
	t.Cleanup(back.Close)

	r.plain = r.rt
	r.opts.Runtime = streamed{r.plain, server, r.forwarded}
	r.opts.Listeners, r.opts.Local = []net.Listener{l}, inprocess.New()
	r.opts.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue("system:node:n1", "system:nodes")}}
	r.opts.ClientCAs = ca.pool
	t.Cleanup(r.start())
	<-r.node.Ready()

	cert := ca.issue("kube-apiserver-kubelet-client")
	r.transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.pool(), Certificates: []tls.Certificate{cert}}}
	t.Cleanup(r.transport.CloseIdleConnections)
	r.cfg = &rest.Config{Host: "https://" + l.Addr().String(), TLSClientConfig: rest.TLSClientConfig{
		CAData: pemOf(ca.cert.Raw), CertData: pemOf(cert.Certificate[0]), KeyData: keyOf(t, cert),
	}}
	return r
}

// forward opens a connection for port-forward, and returns the sandbox to which it leads or the error of the client.
func (r *streamRig) forward(path string) string {
	r.Helper()
	u, err := url.Parse(r.cfg.Host + path)
	if err != nil {
		r.Fatal(err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(r.cfg)
	if err != nil {
		r.Fatal(err)
	}
	conn, _, err := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u).Dial("portforward.k8s.io")
	if err != nil {
		return err.Error()
	}
	_ = conn.Close()
	return <-r.forwarded
}

func TestKubeletStreams(t *testing.T) {
	r := newStreamRig(t)
	r.create(webPod("web", func(p *corev1.Pod) { p.Spec.Containers[0].TTY, p.Spec.Containers[0].Stdin = true, true }))
	r.await("web", "ready", isReady)
	cfg := r.cfg
	call := func(path, in string, tty bool) (string, error) {
		u, err := url.Parse(cfg.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		e, err := remotecommand.NewSPDYExecutor(cfg, http.MethodPost, u)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		opts := remotecommand.StreamOptions{Stdout: &out, Tty: tty}
		if in != "" {
			opts.Stdin = strings.NewReader(in)
		}
		err = e.StreamWithContext(t.Context(), opts)
		return out.String(), err
	}
	for _, tt := range []struct{ path, in, out, err string }{
		{path: "/exec/default/web/web?command=a&command=b+c&output=1&input=1", in: "input", out: "[a b c] tty=false input"},
		{path: "/exec/default/web/web?command=fail&output=1", err: "command terminated with exit code 7"},
		{path: "/attach/default/web/web?output=1", out: "attached tty=true"},
		{path: "/exec/default/web/none?command=a&output=1", err: `unable to upgrade connection: container not found ("none")`},
		{path: "/attach/default/web/none?output=1", err: "unable to upgrade connection: container none not found in pod web_default"},
		{path: "/exec/default/none/web?command=a&output=1", err: "unable to upgrade connection: pod does not exist"},
		{path: "/exec/default/web/other-uid/web?command=a&output=1", err: "unable to upgrade connection: pod not found"},
		{path: "/exec/default/web/web?command=a", err: "unable to upgrade connection: you must specify at least 1 of stdin, stdout, stderr"},
		{path: "/exec/default/web/web?command=gone&output=1", err: "unable to upgrade connection: rpc error: code = NotFound desc = the container is gone"},
		{path: "/portForward/default/none", err: "unable to upgrade connection: pod does not exist"},
	} {
		out, err := call(tt.path, tt.in, strings.HasPrefix(tt.path, "/attach"))
		if out != tt.out || tt.err == "" && err != nil || tt.err != "" && (err == nil || err.Error() != tt.err) {
			t.Errorf("%s: %q, %v, want %q, %s", tt.path, out, err, tt.out, tt.err)
		}
	}
	client := kubelet{t: t, base: cfg.Host, http: &http.Client{Transport: r.transport}}
	for path, want := range map[string]string{
		"/exec/default/web/web?command=a&output=1": "400 Upgrade request required",
	} {
		if code, body, _ := client.do("GET", path); codeAnd(code, body) != want {
			t.Errorf("%s: %s, want %s", path, codeAnd(code, body), want)
		}
	}
	if code, body, _ := client.do("GET", "/runningpods/"); code != 200 || !strings.Contains(body, `"name":"web"`) {
		t.Errorf("runningpods: %s", codeAnd(code, body))
	}

	// The API server in the same process needs no certificate and no TLS.
	inside := kubelet{t: t, base: "http://n1", http: &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return r.opts.Local.Dial(ctx) },
		DisableKeepAlives: true,
	}}}
	if code, body, _ := inside.do("GET", "/runningpods/"); code != 200 || !strings.Contains(body, `"name":"web"`) {
		t.Errorf("runningpods inside of the process: %s", codeAnd(code, body))
	}

	// Simulated containers refuse streams.
	if _, err := r.plain.Exec(t.Context(), &cri.ExecRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a simulated runtime answers %v", err)
	}
}

// TestKubeletForwardsToSandboxes has pods of which no container runs.
func TestKubeletForwardsToSandboxes(t *testing.T) {
	r := newStreamRig(t)
	r.create(webPod("crash"))
	r.await("crash", "ready", isReady)
	for restarts := int32(1); r.pod("crash").Status.ContainerStatuses[0].State.Waiting == nil; restarts++ {
		r.rt.Exit("default", "crash", "web", 1)
		r.await("crash", "restarted or waiting", func(p *corev1.Pod) bool {
			return p.Status.ContainerStatuses[0].RestartCount == restarts && isReady(p) || waits("CrashLoopBackOff")(p)
		})
	}
	r.create(webPod("pulling", func(p *corev1.Pod) {
		p.Annotations, p.Spec.Containers[0].ImagePullPolicy = map[string]string{simulated.PullError: "no such image"}, corev1.PullAlways
	}))
	r.await("pulling", "without its image", func(p *corev1.Pod) bool { return waits("ErrImagePull")(p) || waits("ImagePullBackOff")(p) })
	sandboxes, err := r.rt.ListPodSandbox(t.Context(), nil)
	if err != nil || len(sandboxes) != 2 {
		t.Fatalf("sandboxes %v, %v, want one for each pod", sandboxes, err)
	}
	for _, s := range sandboxes {
		path := "/portForward/default/" + s.GetMetadata().GetName()
		for _, path := range []string{path, path + "/" + s.GetMetadata().GetUid()} {
			if got := r.forward(path); got != s.GetId() {
				t.Errorf("%s: %s, want the sandbox %s", path, got, s.GetId())
			}
		}
	}

	r.create(webPod("done", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }))
	r.await("done", "ready", isReady)
	r.rt.Exit("default", "done", "web", 0)
	r.await("done", "finished", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	r.create(webPod("waiting", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	}))
	r.await("waiting", "waiting", waits("ContainerCreating"))
	for path, want := range map[string]string{
		"/portForward/default/done":            `unable to upgrade connection: pod not found ("done_default")`,
		"/portForward/default/waiting":         `unable to upgrade connection: pod not found ("waiting_default")`,
		"/portForward/default/crash/other-uid": "unable to upgrade connection: pod not found",
		"/portForward/default/none":            "unable to upgrade connection: pod does not exist",
	} {
		if got := r.forward(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
