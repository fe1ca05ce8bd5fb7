package runtime_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkExec measures a command without output from the call of CRI to its exit code, beside libcontainer alone
// that runs the same command in a container of its own.
func BenchmarkExec(b *testing.B) {
	n := newNode(b).start().withDemo()
	k := n.kit()
	id, _ := k.Container("sleep")
	bare := newBare(b, n)
	bare.start(b, 1)
	defer bare.end(b)
	var ours, floors, synced time.Duration
	i := 0
	for b.Loop() {
		i++
		start := time.Now()
		p := &libcontainer.Process{Args: []string{"/bin/demo", "exit"}, Cwd: "/"}
		if err := bare.now.Run(p); err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		n.execTo(b, id, io.Discard, "exit")
		end := time.Now()
		k.Exec(id, "exit")
		synced += time.Since(end)
		ours += end.Sub(middle)
		floors += middle.Sub(start)
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(i) }
	b.ReportMetric(float64(ours)/float64(floors), "x/bare-exec")
	b.ReportMetric(ms(ours), "ms/exec")
	b.ReportMetric(ms(synced), "ms/exec-sync")
	b.ReportMetric(ms(floors), "ms/bare-exec")
}

// BenchmarkExecOutput measures the output of a command beside a bare copy over TLS on the loopback interface.
func BenchmarkExecOutput(b *testing.B) {
	const size = 1 << 30
	n := newNode(b).start().withDemo()
	id, _ := n.kit().Container("sleep")
	var ours, floors time.Duration
	i := 0
	for b.Loop() {
		i++
		start := time.Now()
		bareCopy(b, size)
		middle := time.Now()
		var got count
		n.execTo(b, id, &got, "flood", strconv.Itoa(size))
		if got < size {
			b.Fatalf("of %d bytes %d came", size, got)
		}
		ours += time.Since(middle)
		floors += middle.Sub(start)
	}
	rate := func(d time.Duration) float64 { return float64(i) * size / (1 << 20) / d.Seconds() }
	b.ReportMetric(float64(floors)/float64(ours), "x/bare-TLS")
	b.ReportMetric(rate(ours), "MiB/s")
	b.ReportMetric(rate(floors), "MiB/s-bare-TLS")
}

type count int

func (c *count) Write(p []byte) (int, error) { *c += count(len(p)); return len(p), nil }

func (n *node) execTo(b *testing.B, id string, out io.Writer, cmd ...string) {
	b.Helper()
	res, err := n.runtime.Exec(b.Context(), &cri.ExecRequest{ContainerId: id, Cmd: append([]string{"/bin/demo"}, cmd...), Stdout: true})
	if err != nil {
		b.Fatal(err)
	}
	u, err := url.Parse(res.GetUrl())
	if err != nil {
		b.Fatal(err)
	}
	e, err := remotecommand.NewSPDYExecutor(&rest.Config{}, "POST", u)
	if err != nil {
		b.Fatal(err)
	}
	if err := e.StreamWithContext(b.Context(), remotecommand.StreamOptions{Stdout: out}); err != nil {
		b.Fatal(err)
	}
}

// bareCopy copies over TLS.
func bareCopy(b *testing.B, size int) {
	b.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		buf := make([]byte, 32<<10)
		for left := size; left > 0; left -= len(buf) {
			if _, err := w.Write(buf); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	res, err := server.Client().Get(server.URL)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	var got count
	if _, err := io.CopyBuffer(&got, struct{ io.Reader }{res.Body}, make([]byte, 32<<10)); err != nil || int(got) < size {
		b.Fatalf("%d bytes, %v", got, err)
	}
}
