package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// A registrar serves the registration of a driver on the socket by which the agent finds it.
type registrar struct {
	registration.UnimplementedRegistrationServer
	name     string     // of the driver
	endpoint string     // socket of the driver, as the agent finds it
	refused  chan error // gets the agent's first refusal
}

// GetInfo returns the driver's name and socket.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus makes the program end if the agent refuses the driver. Its container is restarted then, and tries again.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered: %t %s", s.GetPluginRegistered(), s.GetError())
	if !s.GetPluginRegistered() {
		select {
		case r.refused <- errors.New(s.GetError()):
		default:
		}
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// runRegistrar waits for the driver, and registers it until ctx is cancelled.
func runRegistrar(ctx context.Context, f *flag.FlagSet, args []string) error {
	driver := f.String("csi-address", "/run/csi/socket", "socket of the driver")
	registry := f.String("plugin-registration-path", "/registration", "directory in which the agent finds sockets of drivers")
	r := &registrar{refused: make(chan error, 1)}
	f.StringVar(&r.endpoint, "kubelet-registration-path", "", "socket of the driver, as the agent finds it")
	health := f.String("http-endpoint", "", "address of the health check")
	limit := f.Duration("timeout", time.Second, "time limit of a call; the driver may start later")
	_ = f.Parse(args) // it exits on errors
	conn, err := connect(*driver)
	if err != nil {
		return err
	}
	defer conn.Close()
	if r.name, err = driverName(ctx, csi.NewIdentityClient(conn), *limit); err != nil || r.name == "" {
		return err
	}
	l, err := listen(ctx, filepath.Join(*registry, r.name+"-reg.sock"))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, r)
	failed := make(chan error, 2)             // one of each server
	go func() { failed <- server.Serve(l) }() // until Stop
	defer server.Stop()                       // removes the socket
	if *health != "" {
		go func() { failed <- serveHealth(*health, func(context.Context) error { return nil }) }() // until the program ends
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.refused:
		return fmt.Errorf("the agent refused the driver: %w", err)
	case err := <-failed:
		return err
	}
}

// retryPause is the pause after a call that failed.
const retryPause = time.Second

// driverName asks a driver for its name until it answers. It is "" if ctx is cancelled before. A driver that answers at once
// with an error, because it is not ready, is asked again after a pause.
func driverName(ctx context.Context, driver csi.IdentityClient, limit time.Duration) (string, error) {
	for {
		answer, err := call(ctx, limit, driver.GetPluginInfo, &csi.GetPluginInfoRequest{})
		switch {
		case ctx.Err() != nil:
			return "", nil
		case err == nil && answer.GetName() == "":
			return "", errors.New("the driver has no name")
		case err == nil:
			return answer.GetName(), nil
		}
		log.Print(err)
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
}

// serveHealth serves /healthz at an address: 200 if check returns nil, and otherwise 500 with the error.
func serveHealth(address string, check func(context.Context) error) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		if err := check(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte("ok"))
	})
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

// runLiveness serves over HTTP whether the driver answers a probe, until ctx is cancelled.
func runLiveness(ctx context.Context, f *flag.FlagSet, args []string) error {
	driver := f.String("csi-address", "/run/csi/socket", "socket of the driver")
	port := f.Int("health-port", 9808, "port of the health check")
	limit := f.Duration("probe-timeout", time.Second, "time limit of the probe")
	_ = f.Parse(args) // it exits on errors
	conn, err := connect(*driver)
	if err != nil {
		return err
	}
	defer conn.Close()
	failed := make(chan error, 1)
	go func() { // until the program ends
		failed <- serveHealth(fmt.Sprintf(":%d", *port), func(ctx context.Context) error {
			answer, err := call(ctx, *limit, csi.NewIdentityClient(conn).Probe, &csi.ProbeRequest{})
			if err == nil && answer.GetReady() != nil && !answer.GetReady().GetValue() {
				err = errors.New("the driver is not ready")
			}
			return err
		})
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}
