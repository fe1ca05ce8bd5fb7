package clustertest

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Options configures a cluster. The zero Options are a cluster with one simulated
// node.
type Options struct {
	// Program is the path of sampan. Empty means $SAMPAN or else the sampan in
	// PATH.
	Program string

	// Nodes is the number of simulated nodes; 0 means 1. It is ignored with Real.
	Nodes int

	// Real asks for one node with real containers, which needs root. Without root
	// the test is skipped.
	Real bool

	// Args are further arguments of `sampan serve`, such as "--log-level=debug".
	Args []string
}

// A Cluster runs until the end of the test that asked for it.
type Cluster struct {
	Name       string   // of the cluster, as `sampan status --name` knows it
	Kubeconfig string   // path of a kubeconfig with the administrator's rights
	Server     string   // URL of the API server
	Nodes      []string // names

	// ReadyAfter is how long the program took until the API answered and all
	// nodes were Ready.
	ReadyAfter time.Duration

	program string
	data    string // directory
	*process
}

// A process is a program sampan, which runs one or several clusters.
type process struct {
	cmd  *exec.Cmd
	log  *logBuffer
	stop func()
}

// New starts a cluster and blocks until it is ready. A cluster that can't be
// started fails the test with the reason. What the cluster logged is printed when
// the test has failed.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	return newCluster(t, o, "")
}

// newCluster starts a cluster, with the objects of a snapshot if that is not "".
func newCluster(t testing.TB, o Options, snapshot string) *Cluster {
	t.Helper()
	program, err := find(o.Program)
	if err != nil {
		t.Fatal(err)
	}
	if o.Real && os.Getuid() != 0 {
		t.Skip("clustertest: real nodes need root")
	}
	c := &Cluster{Name: newName(), program: program, process: &process{log: &logBuffer{}}}
	c.data = filepath.Join(t.TempDir(), "data")
	args := []string{"serve", "--report", "--ephemeral", "--name=" + c.Name, "--data-dir=" + c.data}
	switch {
	case o.Real && snapshot != "":
		args = append(args, "--simulated-nodes=0")
	case o.Real:
	case snapshot == "" || o.Nodes > 0:
		args = append(args, fmt.Sprintf("--simulated-nodes=%d", max(1, o.Nodes)))
	}
	if snapshot != "" {
		args = append(args, "--from="+snapshot)
		if _, err := os.Stat(keysOf(snapshot)); err == nil {
			args = append(args, "--decryption-keys="+keysOf(snapshot))
		}
	}
	c.run(t, append(args, o.Args...), []*Cluster{c})
	return c
}

func newName() string { return "t-" + strings.ToLower(rand.Text()[:10]) }

// run starts the program, blocks until its clusters are ready, and ends it at the end of the test.
func (p *process) run(t testing.TB, args []string, clusters []*Cluster) {
	t.Helper()
	if err := p.start(clusters[0].program, args, clusters); err != nil {
		t.Fatalf("clustertest: %v\n%s", err, p.log)
	}
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("log of cluster %s:\n%s", clusters[0].Name, p.log)
		}
	})
	for _, c := range clusters {
		c.Kubeconfig = filepath.Join(c.data, "admin.kubeconfig")
	}
}

// Kill kills the cluster's program with SIGKILL, for tests of what survives that. It ends all clusters of [NewMany]. The
// containers of a real node keep running; they and all other remains are removed at the
// end of the test.
func (c *Cluster) Kill() error { return c.cmd.Process.Kill() }

// PID returns the process of the cluster.
func (c *Cluster) PID() int { return c.cmd.Process.Pid }

func find(program string) (string, error) {
	if program == "" {
		program = os.Getenv("SAMPAN")
	}
	if program == "" {
		program = "sampan"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("clustertest: no program sampan: %w; set Options.Program or the environment variable SAMPAN", err)
	}
	return filepath.Abs(path)
}

// report is a line that the program writes about its start.
type report struct {
	Name  string `json:"name"` // of the cluster, if the program runs several
	Ready *struct {
		Server     string        `json:"server"`
		Nodes      []string      `json:"nodes"`
		ReadyAfter time.Duration `json:"readyAfter"`
	} `json:"ready"`
	Error string `json:"error"`
}

// remove removes the containers and files that a killed program has left.
func (c *Cluster) remove() {
	cmd := exec.Command(c.program, "down", "--purge", "--name="+c.Name, "--data-dir="+c.data, "--kubeconfig="+c.data+".kubeconfig") //nolint:noctx // it ends by itself
	if out, err := cmd.CombinedOutput(); err != nil {
		_, _ = fmt.Fprintf(c.log, "removing what is left of the cluster: %v\n%s", err, out)
	}
}

// start runs the program and reads its reports until all clusters are ready.
func (p *process) start(program string, args []string, clusters []*Cluster) error {
	reports, reportsWriter, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reports.Close()
	// The program stops when its standard input is closed, which the kernel does when this
	// process ends.
	alive, life, err := os.Pipe()
	if err != nil {
		return err
	}
	p.cmd = exec.Command(program, args...) //nolint:noctx // stop ends it
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = alive, p.log, p.log
	p.cmd.ExtraFiles = []*os.File{reportsWriter}
	err = p.cmd.Start()
	_, _ = reportsWriter.Close(), alive.Close()
	if err != nil {
		_ = life.Close()
		return fmt.Errorf("starting %s: %w", program, err)
	}
	p.stop = sync.OnceFunc(func() {
		_ = life.Close()
		_ = p.cmd.Wait() // the log explains the exit status
		if !p.cmd.ProcessState.Exited() {
			for _, c := range clusters {
				c.remove()
			}
		}
	})
	if err := follow(reports, program, clusters); err != nil {
		p.stop()
		return err
	}
	return nil
}

// follow reads the reports of the program until all clusters are ready or one has failed.
func follow(reports io.Reader, program string, clusters []*Cluster) error {
	starting := map[string]*Cluster{}
	for _, c := range clusters {
		starting[c.Name] = c
	}
	lines := bufio.NewScanner(reports)
	for lines.Scan() {
		var r report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("%s reported %q: %w", program, lines.Text(), err)
		}
		c := clusters[0]
		if r.Name != "" {
			c = starting[r.Name]
		}
		switch {
		case r.Error != "" && r.Name != "":
			return fmt.Errorf("cluster %s: %s", r.Name, r.Error)
		case r.Error != "":
			return fmt.Errorf("%s", r.Error)
		case r.Ready != nil && c != nil:
			c.Server, c.Nodes, c.ReadyAfter = r.Ready.Server, r.Ready.Nodes, r.Ready.ReadyAfter
			delete(starting, c.Name)
			if len(starting) == 0 {
				return nil
			}
		}
	}
	return fmt.Errorf("%s ended before the cluster was ready", program)
}

// A logBuffer keeps the last logKept bytes that are written to it.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

const logKept = 256 << 10

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if over := b.buf.Len() + len(p) - logKept; over > 0 {
		b.buf.Next(over)
	}
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

var _ io.Writer = (*logBuffer)(nil)
