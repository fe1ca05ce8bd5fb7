// Command csidriver has the programs that the storage tests of upstream's end-to-end suite run beside upstream's CSI sidecars.
// Its first argument is the name of one:
//
//	driver     a CSI driver whose volumes are directories, and files as block devices; or a proxy for a driver elsewhere
//	registrar  registers a driver with the node's agent
//	liveness   serves over HTTP whether a driver answers probes
//
// They have the flags that the manifests of the suite give to hostpathplugin, node-driver-registrar and livenessprobe, and stand in
// for these in the images of the suite. test/csidriver is another driver: that of the project's own tests, which registers by
// itself, needs no sidecars, and fails on demand.
//
// The driver refuses calls out of order if --check-volume-lifecycle is set, so tests find a node that makes them. Its limits:
//
//   - it is for one node: all volumes are on the node of the driver, and only this node can attach them;
//   - the size of a volume that is a directory is not enforced, and NodeGetVolumeStats returns the use of the whole file
//     system for it;
//   - it has no group snapshots, no lists of volumes, no health of volumes and no metadata of snapshots;
//   - fsType and mount options have no effect, and there are no labels of SELinux;
//   - the calls run one at a time, so it finds no races between them.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	programs := map[string]func(context.Context, *flag.FlagSet, []string) error{"driver": runDriver, "registrar": runRegistrar, "liveness": runLiveness}
	if len(os.Args) < 2 || programs[os.Args[1]] == nil { // the program's own name, and one
		log.Fatal("usage: csidriver driver|registrar|liveness [flags]")
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.Int("v", 0, "verbosity; ignored: all calls are logged")
	if err := programs[os.Args[1]](ctx, flags, os.Args[2:]); err != nil {
		log.Fatal(err)
	}
}

// listen listens at an endpoint: unix:///path, tcp://address, or the path of a socket, which may exist.
func listen(ctx context.Context, endpoint string) (net.Listener, error) {
	network, address, ok := strings.Cut(endpoint, "://")
	if !ok {
		network, address = "unix", endpoint
	}
	if network == "unix" {
		if err := os.Remove(address); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	}
	var config net.ListenConfig
	return config.Listen(ctx, network, address)
}

// connect returns a connection to the driver at a socket. It connects when it is used, and waits for the socket.
func connect(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+strings.TrimPrefix(socket, "unix://"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
}

// call calls a driver within a time limit.
func call[Q, A any](ctx context.Context, limit time.Duration, f func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := f(ctx, request)
	if err != nil {
		err = fmt.Errorf("calling the driver: %w", err)
	}
	return answer, err
}
