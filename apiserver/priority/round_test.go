package priority_test

import (
	"context"
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/sampan-io/sampan/apiserver/priority"
	"github.com/sampan-io/sampan/internal/run"
)

// TestCrowdLetsDataIn counts how many requests of a crowd are executed while a byte travels through a pipe, as it would between a
// server and an administrator. The crowd wants nothing but the one processor.
func TestCrowdLetsDataIn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const crowd, travels, most = 100, 50, 10 * 100 // requests for each byte; without rounds there are ten thousand and more
	d := priority.New(100)
	d.Configure(bootstrap())
	greedy := class(d, account("greedy", "default"), priority.Request{Verb: "list", Group: "apps", Resource: "deployments"})
	var executed atomic.Int64
	g := run.NewGroup(t.Context(), 0)
	for range crowd {
		g.Go(func(ctx context.Context) {
			for ctx.Err() == nil {
				ticket, err := d.Enter(ctx, greedy, 1)
				if err == nil {
					executed.Add(1)
					runtime.Gosched() // as a request that is done, see apiserver
					ticket.Leave()
				}
			}
		})
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	arrived := make(chan error)
	g.Go(func(context.Context) {
		for range travels {
			_, err := read.Read(make([]byte, 1))
			arrived <- err
		}
	})
	for executed.Load() < 10*crowd { // each has been executed, and waits
		runtime.Gosched()
	}
	begin := executed.Load()
	for range travels {
		if _, err := write.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
		if err := <-arrived; err != nil {
			t.Fatal(err)
		}
	}
	each := (executed.Load() - begin) / travels
	g.Stop()
	if each > most {
		t.Errorf("%d requests were executed for each byte, want at most %d", each, most)
	}
	t.Logf("%d requests for each byte", each)
}
