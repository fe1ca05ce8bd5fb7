package clusters

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/examples"
	"github.com/sampan-io/sampan/internal/run"
)

func demoCommand(o Options) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Start a cluster and demonstrate a rolling update and a Job on it",
		Long: "Start a cluster, run a web service on it, update the service while a client sends requests to it, each on a new\n" +
			"connection, and run a Job. Each command is printed before it runs, and a summary at the end. The cluster is left\n" +
			"running; `sampan down --purge` removes it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := &demo{cmd: cmd, opts: o}
			return d.run(cmd.Context())
		},
	}
}

// A demo runs the commands of the README one after the other.
type demo struct {
	cmd  *cobra.Command
	opts Options
}

func (d *demo) run(ctx context.Context) error {
	began := time.Now()
	if err := d.verb(ctx, nil, "up"); err != nil {
		return err
	}
	ready := time.Since(began)
	for _, leftover := range []string{"rc/web", "service/web", "job/build"} {
		if err := d.quiet(ctx, nil, "delete", leftover, "--ignore-not-found"); err != nil {
			return err
		}
	}

	began = time.Now()
	if err := d.verb(ctx, examples.Web, "create", "-f", "examples/web.yaml"); err != nil {
		return err
	}
	if err := d.verb(ctx, nil, "wait", "rc/web", "--for=ready"); err != nil {
		return err
	}
	allReady := time.Since(began)
	url, err := d.serviceURL(ctx)
	if err != nil {
		return err
	}
	for range 3 {
		d.say("$ curl %s", url)
		answer, err := fetch(ctx, url)
		if err != nil {
			return err
		}
		d.say("%s", strings.TrimSpace(answer))
	}

	load := startLoad(ctx, url)
	began = time.Now()
	err = d.verb(ctx, nil, "rolling-update", "web", "--image=sampan.local/demo:v2", "--update-period=0s")
	rolled := time.Since(began)
	// The last of the old pods are still on their way out, and requests may be on
	// their way to them.
	select {
	case <-ctx.Done():
	case <-time.After(oldPodsEnd):
	}
	sent, failed, versions, first := load.stop()
	if err != nil {
		return err
	}

	if err := d.verb(ctx, examples.BuildJob, "create", "-f", "examples/build-job.yaml"); err != nil {
		return err
	}
	for _, args := range [][]string{{"wait", "job/build", "--for=running"}, {"wait", "job/build", "--for=finished"}, {"logs", "job/build"}} {
		if err := d.verb(ctx, nil, args...); err != nil {
			return err
		}
	}

	d.say("")
	w := tabwriter.NewWriter(d.cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("time to ready", "%v", ready.Round(time.Millisecond))
	row("create to all pods ready", "%v", allReady.Round(time.Millisecond))
	row("rolling update", "%v", rolled.Round(time.Millisecond))
	row("requests sent meanwhile", "%d (%s)", sent, versions)
	row("requests failed", "%d", failed)
	if mem, err := d.memory(); err == nil {
		row("memory of sampan's processes", "%.1f MiB", float64(mem)/(1<<20))
	}
	_ = w.Flush()
	if failed > 0 {
		return fmt.Errorf("%d of %d requests failed during the rolling update; the first error: %w", failed, sent, first)
	}
	return nil
}

// verb prints a command and runs it. in stands for the file after -f.
func (d *demo) verb(ctx context.Context, in []byte, args ...string) error {
	d.say("$ sampan %s", strings.Join(args, " "))
	return d.quiet(ctx, in, args...)
}

func (d *demo) quiet(ctx context.Context, in []byte, args ...string) error {
	full := d.global(args[0])
	for i, a := range args {
		if in != nil && i > 0 && args[i-1] == "-f" {
			a = "-"
		}
		full = append(full, a)
	}
	if code := d.opts.Verb(ctx, bytes.NewReader(in), full...); code != 0 {
		return fmt.Errorf("`sampan %s` ended with code %d", strings.Join(args, " "), code)
	}
	return nil
}

// global returns the global flags that the demo was called with, for a verb that it calls. All verbs but up are about the
// objects of a context.
func (d *demo) global(verb string) []string {
	var args []string
	for _, name := range []string{"name", "data-dir", "kubeconfig"} {
		if v := flag(d.cmd, name); v != "" {
			args = append(args, "--"+name+"="+v)
		}
	}
	if p, err := profileOf(d.cmd); err == nil && verb != "up" {
		args = append(args, "--context="+p.Context())
	}
	return args
}

func (d *demo) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.cmd.OutOrStdout(), format+"\n", args...)
}

func (d *demo) memory() (int64, error) {
	p, err := profileOf(d.cmd)
	if err != nil {
		return 0, err
	}
	i, _, err := p.Instance()
	if err != nil {
		return 0, err
	}
	return i.Memory()
}

func fetch(ctx context.Context, url string) (string, error) {
	// A connection of its own for each request: what is balanced is
	// connections.
	t := &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext}
	defer t.CloseIdleConnections()
	c := &http.Client{Transport: t, Timeout: 30 * time.Second}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return string(body), err
}

// A load is a few clients that send requests on fresh connections until it is
// stopped.
type load struct {
	group  *run.Group
	cancel context.CancelFunc

	sent, failed atomic.Int64

	mu       sync.Mutex
	first    error          // guarded by mu; the first failure
	versions map[string]int // guarded by mu; answers by the version that gave them
}

const loadClients = 4

// oldPodsEnd is longer than the pods of the example take to end: they drain for a
// second.
const oldPodsEnd = 2 * time.Second

func startLoad(ctx context.Context, url string) *load {
	l := &load{versions: map[string]int{}}
	ctx, l.cancel = context.WithCancel(ctx)
	l.group = run.NewGroup(ctx, 0)
	for range loadClients {
		l.group.Go(func(ctx context.Context) {
			// The pace leaves the machine to the pods, and ports to the host.
			pace := time.NewTicker(5 * time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-pace.C:
					l.request(ctx, url)
				}
			}
		})
	}
	return l
}

func (l *load) request(ctx context.Context, url string) {
	// A request that is under way when the load is stopped is finished.
	answer, err := fetch(context.WithoutCancel(ctx), url)
	l.sent.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed.Add(1)
		if l.first == nil {
			l.first = err
		}
		return
	}
	// "sampan demo v1 pod …"
	if f := strings.Fields(answer); len(f) > 2 {
		l.versions[f[2]]++
	}
}

// stop ends the clients and returns their results.
func (l *load) stop() (sent, failed int64, versions string, first error) {
	l.group.Stop()
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent.Load(), l.failed.Load(), fmt.Sprintf("%d answered by v1, %d by v2", l.versions["v1"], l.versions["v2"]), l.first
}

// serviceURL asks the API for the address of the service.
func (d *demo) serviceURL(ctx context.Context) (string, error) {
	p, _, _, err := found(d.cmd)
	if err != nil {
		return "", err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig())
	if err != nil {
		return "", err
	}
	api, err := client.NewREST(cfg, client.RESTOptions{UserAgent: "sampan-demo"})
	if err != nil {
		return "", err
	}
	svc, err := client.Services.Get(ctx, api, "default", "web")
	if err != nil {
		return "", err
	}
	return "http://" + svc.Spec.ClusterIP + "/", nil
}
