package probe

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
)

// check asks a server for its health by the gRPC health checking protocol, version 1. The messages are those of Kubernetes.
func check(ctx context.Context, ip string, a *corev1.GRPCAction, timeout time.Duration) error {
	addr := net.JoinHostPort(ip, strconv.Itoa(int(a.Port)))
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent("kube-probe/1.37"), grpc.WithNoProxy())
	if err != nil {
		return fmt.Errorf("error: failed to connect service at %q: %w", addr, err)
	}
	defer conn.Close()
	if !connected(ctx, conn) {
		return fmt.Errorf("timeout: failed to connect service %q within %v: %w", addr, timeout, ctx.Err())
	}
	service := ""
	if a.Service != nil {
		service = *a.Service
	}
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return fmt.Errorf("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", status.Convert(err).Message())
	case status.Code(err) == codes.DeadlineExceeded:
		return fmt.Errorf("timeout: health rpc did not complete within %v", timeout)
	case err != nil:
		return fmt.Errorf("error: health rpc probe failed: %w", err)
	case resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return fmt.Errorf("service unhealthy (responded with %q)", resp.GetStatus().String())
	}
	return nil
}

// connected waits until the connection stands, at most until ctx is cancelled.
func connected(ctx context.Context, conn *grpc.ClientConn) bool {
	for {
		conn.Connect()
		state := conn.GetState()
		if state == connectivity.Ready {
			return true
		}
		if !conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
}
