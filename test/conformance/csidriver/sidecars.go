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

// registrar answers the agent that looks at its socket.
type registrar struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
	refused        chan error
}

// GetInfo says where the driver is.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus ends the program if the agent refuses the driver. It is started again then.
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
	registry := f.String("plugin-registration-path", "/registration", "directory of the sockets that the agent looks at")
	r := &registrar{refused: make(chan error, 1)}
	f.StringVar(&r.endpoint, "kubelet-registration-path", "", "socket of the driver, as the agent sees it")
	health := f.String("http-endpoint", "", "address of the health check")
	limit := f.Duration("timeout", time.Second, "time limit of calls; the driver may come later")
	_ = f.Parse(args) // it exits on errors
	conn, err := connect(*driver)
	if err != nil {
		return err
	}
	defer conn.Close()
	for r.name == "" {
		answer, err := call(ctx, *limit, csi.NewIdentityClient(conn).GetPluginInfo, &csi.GetPluginInfoRequest{})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			log.Print(err)
			continue
		}
		r.name = answer.GetName()
	}
	l, err := listen(ctx, filepath.Join(*registry, r.name+"-reg.sock"))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, r)
	failed := make(chan error, 2)             //nolint:mnd // one of each server
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

// serveHealth serves /healthz at an address.
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

// runLiveness serves over HTTP whether the driver answers a probe.
func runLiveness(ctx context.Context, f *flag.FlagSet, args []string) error {
	driver := f.String("csi-address", "/run/csi/socket", "socket of the driver")
	port := f.Int("health-port", 9808, "port of the health check") //nolint:mnd // default
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
