package main

import (
	"context"
	"net"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// one is a listener with one connection.
type one struct {
	conns chan net.Conn
	addr  net.Addr
}

func (l *one) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l *one) Close() error   { close(l.conns); return nil }
func (l *one) Addr() net.Addr { return l.addr }

// serveOn has a driver answer on a connection.
func serveOn(t *testing.T, d *driver, c net.Conn) *grpc.Server {
	t.Helper()
	l := &one{make(chan net.Conn, 1), c.LocalAddr()}
	l.conns <- c
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, d)
	go func() { _ = server.Serve(l) }() // until Stop
	return server
}

func getInfo(ctx context.Context, conn *grpc.ClientConn) (*registration.PluginInfo, error) {
	return registration.NewRegistrationClient(conn).GetInfo(ctx, &registration.InfoRequest{})
}
