//go:build !linux || portable

package cluster

import (
	"context"
	"errors"
	"net"

	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/internal/run"
)

// errNeedsLinux is the end of each attempt to run a real node. The command line refuses it earlier, and says what else there is.
var errNeedsLinux = errors.New("a real node needs Linux")

// freebind is an ordinary listener: only bridges of real nodes come up later than the listeners on them.
var freebind net.ListenConfig

func (c *cluster) proxy(access, *cache.Shared) ([]run.Stage, error) {
	if !c.real() {
		return nil, nil
	}
	return nil, errNeedsLinux
}

func (c *cluster) firewall(access) run.Stage { return nil }

func (c *cluster) routes(*cache.Shared) run.Stage { return nil }

func (c *cluster) makeNodeLink() error { return errNeedsLinux }

func changes(context.Context) (<-chan struct{}, error) { return nil, errNeedsLinux }

// Clean does nothing: simulated nodes leave nothing in the kernel.
func Clean(context.Context, local.Profile, local.Instance, func(dir string) (string, error)) error {
	return nil
}
