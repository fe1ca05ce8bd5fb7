package hosts

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// An API is an API server on the control host, as nodes and this process reach it.
type API struct {
	Kubeconfig string       // for nodes
	Config     *rest.Config // for this process, without a limit on the rate of requests

	world   *World
	host    *Host // where it runs
	program string
	data    string
	args    []string         // that say what it serves
	input   io.Closer        // of the program: one that is to leave nothing ends with that
	listen  *net.TCPListener // where nodes connect; nil if that is the server itself
	process *Process         // nil if another process started it
}

// startPatience is how long a program may take to start on a loaded machine.
const startPatience = time.Minute

// Connect returns what is needed for a server at an address that nodes reach, of which cfg
// knows the rest. The kubeconfig is written into dir.
func (w *World) Connect(cfg *clientcmdapi.Config, dir string) (*API, error) {
	a := &API{Kubeconfig: filepath.Join(dir, "kubeconfig"), world: w}
	if err := clientcmd.WriteToFile(*cfg, a.Kubeconfig); err != nil {
		return nil, err
	}
	var err error
	if a.Config, err = clientcmd.BuildConfigFromFlags("", a.Kubeconfig); err != nil {
		return nil, err
	}
	a.Config.QPS, a.Config.ContentType = -1, "application/json"
	a.Config.Dial = w.Control.dialer
	return a, nil
}

// Plain is the client configuration for a server without authentication.
func Plain(url string) *clientcmdapi.Config {
	return kubeconfig(&clientcmdapi.Cluster{Server: url}, &clientcmdapi.AuthInfo{})
}

func kubeconfig(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) *clientcmdapi.Config {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["world"], cfg.AuthInfos["user"] = c, u
	cfg.Contexts["world"] = &clientcmdapi.Context{Cluster: "world", AuthInfo: "user"}
	cfg.CurrentContext = "world"
	return cfg
}

// apiPort is that of the API server on loopback of the control host, and where nodes reach it.
const apiPort = 6443

// StartAPI starts `sampan serve` on the control host, with data in dir and without nodes
// that have proxies. It has cluster IPs of IPv4.
func (w *World) StartAPI(program, dir string) (_ *API, err error) {
	first := &API{
		world: w, host: w.Control, program: program, data: filepath.Join(dir, "data"),
		args: []string{"--simulated-nodes=1", "--service-network=" + Services[0].String(), "--pod-network=" + AllPods[0].String()},
	}
	defer func() {
		if err != nil {
			first.Close()
		}
	}()
	if err := first.Start(); err != nil {
		return nil, err
	}
	if first.listen, err = w.Control.Listen(netip.AddrPortFrom(ControlAddress(), apiPort)); err != nil {
		return nil, err
	}
	go w.relay(first.listen, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), apiPort))
	admin, err := clientcmd.LoadFromFile(filepath.Join(first.data, "admin.kubeconfig"))
	if err != nil {
		return nil, err
	}
	here := admin.Contexts[admin.CurrentContext]
	server := admin.Clusters[here.Cluster]
	server.Server, server.TLSServerName = "https://"+first.listen.Addr().String(), "127.0.0.1"
	a, err := w.Connect(kubeconfig(server, admin.AuthInfos[here.AuthInfo]), dir)
	if err != nil {
		return nil, err
	}
	first.Kubeconfig, first.Config = a.Kubeconfig, a.Config
	return first, nil
}

// StartCluster starts `sampan serve` with a real node, which is the n-th one counted from 1,
// with data in dir and other arguments. Stop it with Process and Stop.
func (w *World) StartCluster(program, dir string, n int, args ...string) (*API, error) {
	h := w.Nodes[n-1].Host
	a := &API{
		Kubeconfig: filepath.Join(dir, "data", "admin.kubeconfig"), world: w, host: h, program: program, data: filepath.Join(dir, "data"),
		args: append([]string{"--ephemeral", "--node-name=" + h.Name}, args...),
	}
	err := a.Start()
	if err == nil {
		a.Config, err = clientcmd.BuildConfigFromFlags("", a.Kubeconfig)
	}
	if err != nil {
		a.Close()
		return nil, err
	}
	a.Config.Dial = h.dialer
	return a, nil
}

// dialer connects as the host does, for clients of an API.
func (h *Host) dialer(_ context.Context, network, address string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	return h.Dial(network, at, startPatience)
}

// Start starts the program, again if it has been killed, and blocks until it is ready.
func (a *API) Start() error {
	told, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = told.Close() }()
	cmd := exec.Command(a.program, append([]string{
		"serve", "--report", "--name=" + filepath.Base(filepath.Dir(a.data)), "--data-dir=" + a.data, fmt.Sprintf("--api-port=%d", apiPort),
	}, a.args...)...)
	cmd.ExtraFiles = []*os.File{tell}
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+filepath.Dir(a.data))
	if a.input, err = cmd.StdinPipe(); err != nil {
		return errors.Join(err, tell.Close())
	}
	a.process, err = a.host.Run(cmd)
	if err = errors.Join(err, tell.Close()); err != nil {
		return err
	}
	var last string
	for lines := bufio.NewScanner(told); lines.Scan(); last = lines.Text() {
		var report map[string]any
		if err := json.Unmarshal(lines.Bytes(), &report); err != nil {
			return err
		}
		if report["ready"] != nil {
			return nil
		}
	}
	a.process.Kill()
	return fmt.Errorf("sampan serve did not get ready: %s\n%s", last, a.process.Said())
}

// Kill ends the program as kill -9 does.
func (a *API) Kill() { a.process.Kill() }

// Process is that of the server.
func (a *API) Process() *Process { return a.process }

// Close ends the program for good.
func (a *API) Close() {
	if a.listen != nil {
		_ = a.listen.Close()
	}
	if a.process != nil {
		a.process.Kill()
	}
}

// relay carries connections from a listener to an address that only the control host has.
func (w *World) relay(l *net.TCPListener, to netip.AddrPort) {
	for {
		in, err := l.AcceptTCP()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = in.Close() }()
			c, err := w.Control.Dial("tcp", to, startPatience)
			if err != nil {
				_ = in.SetLinger(0) // as a port is without a server
				return
			}
			defer func() { _ = c.Close() }()
			out := c.(*net.TCPConn)
			go func() {
				_, _ = io.Copy(out, in)
				_ = out.CloseWrite()
			}()
			_, _ = io.Copy(in, out)
		}()
	}
}

// A Process is a program that runs on a host.
type Process struct {
	PID int

	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended; to be read when done is closed

	mu   sync.Mutex
	said bytes.Buffer // guarded by mu
}

// Run starts a program as Start does, and keeps what it says.
func (h *Host) Run(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p, p
	if err := h.Start(cmd); err != nil {
		return nil, err
	}
	p.PID = cmd.Process.Pid
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Write keeps what the program says.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(b)
}

// Said is what the program has said so far.
func (p *Process) Said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how it ended.
func (p *Process) Err() error { return p.err }

// Stop ends the program as a service manager does, and returns how it ended.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-p.done
	return p.err
}

// Kill ends the program by force.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Health check and metrics ports of the proxy.
const (
	HealthzPort = 10256
	MetricsPort = 10249
)

// StartProxy starts `sampan proxy` on the n-th node, counted from 1.
func (a *API) StartProxy(program string, n int, args ...string) (*Process, error) {
	h := a.world.Nodes[n-1]
	return h.Run(exec.Command(program, append([]string{
		"proxy", "--kubeconfig=" + a.Kubeconfig, "--hostname-override=" + h.Name,
		"--cluster-cidr=" + PodNetwork(0, n).String() + "," + PodNetwork(1, n).String(),
		"--service-cluster-ip-range=" + Services[0].String() + "," + Services[1].String(),
		fmt.Sprintf("--healthz-bind-address=0.0.0.0:%d", HealthzPort), fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", MetricsPort),
	}, args...)...))
}
