package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sampan-io/sampan/cluster/pki"
)

// Options configures a [Plane]. Programs is required.
type Options struct {
	Programs  string // directory of the programs of upstream
	Scheduler string // program of Sampan, whose scheduler works; empty means upstream's
	Features  string // feature gates of the API server, such as Name=true
	Nodes     int    // simulated nodes

	Controllers string // program of Sampan, whose controllers work; empty means upstream's
}

// A Plane is a cluster of upstream's servers, with the nodes of ours. It runs until
// the end of the test that asked for it.
type Plane struct {
	Kubeconfig string // of an administrator

	t         testing.TB
	opts      Options
	dir       string
	authority *pki.Authority
	url       string
	etcd      string // URL
	server    *process
	scheduler *process
	manager   *process
}

// Start starts a cluster and blocks until its nodes are registered.
func Start(t testing.TB, o Options) *Plane {
	t.Helper()
	p := startServers(t, o)
	p.startManager()
	p.startScheduler()
	p.startNodes()
	return p
}

// startServers starts etcd and the API server alone.
func startServers(t testing.TB, o Options) *Plane {
	t.Helper()
	p := &Plane{t: t, opts: o, dir: t.TempDir()}
	var err error
	if p.authority, err = pki.Open(filepath.Join(p.dir, "pki"), time.Now()); err != nil {
		t.Fatal(err)
	}
	p.startEtcd()
	p.writeFiles()
	p.StartServer()
	return p
}

// A process is one of the servers.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

// end kills the server and returns when it has ended.
func (s *process) end() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// run starts a server. It ends with the test, and then, if the test failed, the end of
// its log is shown.
func (p *Plane) run(name, program string, args ...string) *process {
	p.t.Helper()
	s := &process{name: name, log: filepath.Join(p.dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	s.cmd = exec.Command(program, args...) // its life ends with end
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.Dir = log, log, p.dir
	// No test outlives its servers, and no server a test that was killed.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = start(s.cmd)
	_ = log.Close()
	if err != nil {
		p.t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait() // its log says why
		close(s.done)
	}()
	p.t.Cleanup(func() {
		s.end()
		if p.t.Failed() {
			p.t.Logf("the end of the log of %s:\n%s", name, tail(s.log))
		}
	})
	return s
}

// tail returns the last lines of a log.
func tail(file string) []byte {
	const most = 8 << 10
	data, err := os.ReadFile(file)
	if err != nil {
		return []byte(err.Error())
	}
	if len(data) > most {
		data = data[len(data)-most:]
	}
	return data
}

// A launch is the start of a program.
type launch struct {
	cmd  *exec.Cmd
	done chan error
}

// launches are handled by one thread that ends with this process: a child gets its signal
// when the thread that started it dies.
var launches = sync.OnceValue(func() chan<- launch {
	c := make(chan launch)
	go func() {
		for l := range c {
			l.done <- l.cmd.Start()
		}
	}()
	return c
})

func start(cmd *exec.Cmd) error {
	l := launch{cmd, make(chan error)}
	launches() <- l
	return <-l.done
}

// Servers get ports below the range from which the kernel serves clients (net.ipv4.ip_local_port_range), so that no connection
// takes one before its server listens.
const (
	firstPort = 20000
	ports     = 10000
)

// freePort returns a port of loopback that is free now.
func (p *Plane) freePort() int {
	p.t.Helper()
	for range 100 {
		l, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(firstPort+rand.IntN(ports))) // it does not block
		if err == nil {
			defer func() { _ = l.Close() }()
			return l.Addr().(*net.TCPAddr).Port
		}
	}
	p.t.Fatalf("none of 100 ports from %d on is free", firstPort)
	return 0
}

func (p *Plane) startEtcd() {
	p.t.Helper()
	p.etcd = "http://127.0.0.1:" + strconv.Itoa(p.freePort())
	peers := "http://127.0.0.1:" + strconv.Itoa(p.freePort())
	p.run("etcd", filepath.Join(p.opts.Programs, "etcd"),
		"--data-dir="+filepath.Join(p.dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+p.etcd, "--advertise-client-urls="+p.etcd,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers)
}

// file returns the path of a file of this cluster.
func (p *Plane) file(name string) string { return filepath.Join(p.dir, name) }

// writeFiles makes the certificates and the kubeconfigs.
func (p *Plane) writeFiles() {
	p.t.Helper()
	p.url = "https://127.0.0.1:" + strconv.Itoa(p.freePort())
	p.write("ca.pem", p.authority.CertificatePEM())
	loopback := []net.IP{net.IPv4(127, 0, 0, 1)}
	p.issue("server", pki.Subject{CommonName: "kube-apiserver", DNSNames: []string{"localhost", "kubernetes.default.svc"}, IPs: loopback})
	p.issue("tokens", pki.Subject{CommonName: "service-accounts"})
	p.issue("to-nodes", pki.Subject{CommonName: "kube-apiserver-kubelet-client", Organizations: []string{"system:masters"}})
	p.issue("to-servers", pki.Subject{CommonName: "front-proxy-client"})
	p.Kubeconfig = p.kubeconfig("admin", pki.Subject{CommonName: "kubernetes-admin", Organizations: []string{"system:masters"}})
	p.kubeconfig("manager", pki.Subject{CommonName: "system:kube-controller-manager"})
	p.kubeconfig("scheduler", pki.Subject{CommonName: "system:kube-scheduler"})
}

func (p *Plane) write(name string, data []byte) {
	p.t.Helper()
	if err := os.WriteFile(p.file(name), data, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// issue writes NAME.pem and NAME.key.
func (p *Plane) issue(name string, s pki.Subject) {
	p.t.Helper()
	c, err := p.authority.Issue(s, time.Now())
	if err != nil {
		p.t.Fatal(err)
	}
	cert, key, err := pki.PEM(c)
	if err != nil {
		p.t.Fatal(err)
	}
	p.write(name+".pem", cert)
	p.write(name+".key", key)
}

// kubeconfig writes NAME.kubeconfig and returns its path.
func (p *Plane) kubeconfig(name string, s pki.Subject) string {
	p.t.Helper()
	p.issue(name, s)
	c := clientcmdapi.NewConfig()
	c.Clusters["upstream"] = &clientcmdapi.Cluster{Server: p.url, CertificateAuthorityData: p.authority.CertificatePEM()}
	c.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificate: p.file(name + ".pem"), ClientKey: p.file(name + ".key")}
	c.Contexts["upstream"] = &clientcmdapi.Context{Cluster: "upstream", AuthInfo: name}
	c.CurrentContext = "upstream"
	path := p.file(name + ".kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// StartServer starts the API server, or starts it again after [Plane.KillServer], and
// blocks until it is ready.
func (p *Plane) StartServer() {
	p.t.Helper()
	_, port, err := net.SplitHostPort(p.url[len("https://"):])
	if err != nil {
		p.t.Fatal(err)
	}
	p.server = p.run("kube-apiserver", filepath.Join(p.opts.Programs, "kube-apiserver"),
		"--etcd-servers="+p.etcd, "--bind-address=127.0.0.1", "--secure-port="+port,
		"--advertise-address=192.0.2.1", // of the service kubernetes; a server refuses loopback there
		"--tls-cert-file="+p.file("server.pem"), "--tls-private-key-file="+p.file("server.key"), "--client-ca-file="+p.file("ca.pem"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+p.file("tokens.pem"),
		"--service-account-signing-key-file="+p.file("tokens.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--service-cluster-ip-range=10.0.0.0/16",
		"--kubelet-certificate-authority="+p.file("ca.pem"), "--kubelet-client-certificate="+p.file("to-nodes.pem"),
		"--kubelet-client-key="+p.file("to-nodes.key"), "--kubelet-preferred-address-types=InternalIP",
		"--proxy-client-cert-file="+p.file("to-servers.pem"), "--proxy-client-key-file="+p.file("to-servers.key"),
		"--requestheader-client-ca-file="+p.file("ca.pem"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--feature-gates="+p.opts.Features,
		"--enable-bootstrap-token-auth", "--allow-privileged=true",
	)
	if err := p.awaitServer(p.server, p.url+"/readyz"); err != nil {
		p.t.Fatalf("%v\n%s", err, tail(p.server.log))
	}
}

// startOurServer starts Sampan in the place of etcd and the API server, with the same certificates and keys, and returns its URL when it
// is ready.
func (p *Plane) startOurServer(sampan string) string {
	p.t.Helper()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := os.Symlink(sampan, p.file("sampan-"+name)); err != nil {
			p.t.Fatal(err)
		}
		if err := os.Mkdir(p.file("as-"+name), 0o700); err != nil {
			p.t.Fatal(err)
		}
		if err := os.Rename(p.file("sampan-"+name), p.file("as-"+name+"/"+name)); err != nil {
			p.t.Fatal(err)
		}
	}
	data, port := "http://127.0.0.1:"+strconv.Itoa(p.freePort()), strconv.Itoa(p.freePort())
	etcd := p.run("our-etcd", p.file("as-etcd/etcd"), "--data-dir="+p.file("our-data"), "--listen-client-urls="+data, "--advertise-client-urls="+data)
	if err := p.awaitServer(etcd, data+"/health"); err != nil {
		p.t.Fatalf("%v\n%s", err, tail(etcd.log))
	}
	server := p.run("our-server", p.file("as-kube-apiserver/kube-apiserver"), "--etcd-servers="+data, "--bind-address=127.0.0.1", "--secure-port="+port,
		"--tls-cert-file="+p.file("server.pem"), "--tls-private-key-file="+p.file("server.key"), "--client-ca-file="+p.file("ca.pem"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+p.file("tokens.pem"),
		"--service-account-signing-key-file="+p.file("tokens.key"),
		"--authorization-mode=Node,RBAC", "--service-cluster-ip-range=10.0.0.0/16", "--allow-privileged=true")
	url := "https://127.0.0.1:" + port
	if err := p.awaitServer(server, url+"/readyz"); err != nil {
		p.t.Fatalf("%v\n%s", err, tail(server.log))
	}
	return url
}

// KillServer ends the API server as kill -9 does.
func (p *Plane) KillServer() { p.server.end() }

// serverTimeout is far more than an API server takes to become ready.
const serverTimeout = 3 * time.Minute

// transport returns one with the rights of the administrator.
func (p *Plane) transport() (*http.Transport, error) {
	pair, err := tls.LoadX509KeyPair(p.file("admin.pem"), p.file("admin.key"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.authority.CertificatePEM())
	return &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{pair}}}, nil
}

// awaitServer polls a URL of a server until the server is ready; it does not notify.
func (p *Plane) awaitServer(server *process, url string) error {
	transport, err := p.transport()
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	pace := time.NewTicker(50 * time.Millisecond)
	defer pace.Stop()
	last := errors.New("not asked")
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server is not ready after %v: %w", serverTimeout, last)
		case <-server.done:
			return errors.New("the API server has ended")
		case <-pace.C:
		}
		if last = ask(ctx, transport, url); last == nil {
			return nil
		}
	}
}

func ask(ctx context.Context, transport http.RoundTripper, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	var said bytes.Buffer
	_, _ = said.ReadFrom(resp.Body)
	return fmt.Errorf("%s: %s", resp.Status, &said)
}

// startManager starts the controllers, upstream's or ours. Those of upstream may ask more often than upstream lets them, so
// that the sessions take less time.
func (p *Plane) startManager() {
	p.t.Helper()
	if p.opts.Controllers != "" {
		p.manager = p.runControllers("sampan-controllers", "--leader-elect=false")
		return
	}
	p.manager = p.run("kube-controller-manager", filepath.Join(p.opts.Programs, "kube-controller-manager"),
		append(p.managerFlags(), "--leader-elect=false", "--secure-port=0", "--kube-api-qps=200", "--kube-api-burst=400")...)
}

// managerFlags returns flags that upstream's controllers and ours have.
func (p *Plane) managerFlags() []string {
	return []string{
		"--kubeconfig=" + p.file("manager.kubeconfig"), "--use-service-account-credentials=true",
		"--root-ca-file=" + p.file("ca.pem"), "--service-account-private-key-file=" + p.file("tokens.key"),
	}
}

// runControllers starts our controllers, with all of upstream's names that have one.
func (p *Plane) runControllers(name string, args ...string) *process {
	p.t.Helper()
	return p.run(name, p.opts.Controllers, slices.Concat([]string{"controllers"}, p.managerFlags(), []string{
		"--controllers=*,bootstrapsigner,tokencleaner",
		"--cluster-signing-cert-file=" + p.file("ca.pem"), "--cluster-signing-key-file=" + p.file("pki/ca.key"),
	}, args)...)
}

func (p *Plane) startScheduler() {
	p.t.Helper()
	kubeconfig := p.file("scheduler.kubeconfig")
	if p.opts.Scheduler != "" {
		p.scheduler = p.run("sampan-scheduler", p.opts.Scheduler, "scheduler", "--kubeconfig="+kubeconfig)
		return
	}
	p.scheduler = p.run("kube-scheduler", filepath.Join(p.opts.Programs, "kube-scheduler"),
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--leader-elect=false", "--secure-port=0", "--kube-api-qps=200", "--kube-api-burst=400")
}
