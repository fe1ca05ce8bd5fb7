package main

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// singleListener is a listener with one connection.
type singleListener struct {
	conns chan net.Conn
	addr  net.Addr
}

func (l *singleListener) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l *singleListener) Close() error   { close(l.conns); return nil }
func (l *singleListener) Addr() net.Addr { return l.addr }

// serveOn serves a driver on a connection.
func serveOn(t *testing.T, d *driver, c net.Conn) *grpc.Server {
	t.Helper()
	l := &singleListener{make(chan net.Conn, 1), c.LocalAddr()}
	l.conns <- c
	server := newServer(d)
	go func() { _ = server.Serve(l) }() // until Stop
	return server
}

func getInfo(ctx context.Context, conn *grpc.ClientConn) (*registration.PluginInfo, error) {
	return registration.NewRegistrationClient(conn).GetInfo(ctx, &registration.InfoRequest{})
}
