package runtime

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"

	"github.com/sampan-io/sampan/internal/channels"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/streams"
	"github.com/sampan-io/sampan/runtime/api"
	"github.com/sampan-io/sampan/runtime/container"
	"github.com/sampan-io/sampan/runtime/network"
	"github.com/sampan-io/sampan/runtime/streaming"
)

// Exec implements CRI.
func (s *Server) Exec(_ context.Context, req *cri.ExecRequest) (*cri.ExecResponse, error) {
	if err := s.checkRunning(req.GetContainerId()); err != nil {
		return nil, err
	}
	if len(req.GetCmd()) == 0 {
		return nil, invalid("cmd is empty")
	}
	return s.streams.Exec(req)
}

// Attach implements CRI. The metadata api.AttachSince asks for earlier output.
func (s *Server) Attach(ctx context.Context, req *cri.AttachRequest) (*cri.AttachResponse, error) {
	if err := s.checkRunning(req.GetContainerId()); err != nil {
		return nil, err
	}
	var since *time.Time
	if texts := metadata.ValueFromIncomingContext(ctx, api.AttachSince); len(texts) > 0 {
		at, err := time.Parse(time.RFC3339Nano, texts[0])
		if err != nil {
			return nil, invalid("metadata %s: want a time in RFC 3339, got %q", api.AttachSince, texts[0])
		}
		since = &at
	}
	return s.streams.Attach(req, since)
}

// PortForward implements CRI.
func (s *Server) PortForward(_ context.Context, req *cri.PortForwardRequest) (*cri.PortForwardResponse, error) {
	p, err := s.findPod(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if !p.snapshot().Ready {
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox container %q is not running", req.GetPodSandboxId())
	}
	for _, port := range req.GetPort() {
		if port < 1 || port > maxPort {
			return nil, invalid("port: must be 1 to %d, got %d", maxPort, port)
		}
	}
	return s.streams.PortForward(req)
}

const maxPort = 65535

func (s *Server) checkRunning(id string) error {
	r, err := s.supervisor.Get(id)
	if err != nil {
		return err
	}
	if state := containerState(&r); state != cri.ContainerState_CONTAINER_RUNNING {
		return status.Errorf(codes.FailedPrecondition, "container is in %s state", state)
	}
	return nil
}

// streamHandler does what streams are for. It is a [Server] without its CRI calls.
type streamHandler struct{ *Server }

var _ streaming.Handler = streamHandler{}

// ServeExec implements [streaming.Handler].
func (h streamHandler) ServeExec(ctx context.Context, req *cri.ExecRequest, client streams.Client) error {
	session := container.Session{
		Args: req.GetCmd(), Terminal: req.GetTty(), Stdin: client.Stdin, Stdout: client.Stdout, Stderr: client.Stderr,
	}
	if session.Terminal {
		sizes, stop := translate(ctx, client.Resize)
		defer stop()
		session.Resize, session.Size = sizes, container.FirstSize(ctx, sizes)
	}
	code, err := h.supervisor.RunSession(ctx, req.GetContainerId(), session)
	if err != nil {
		return fmt.Errorf("failed to exec in container: %w", err)
	}
	if code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("error executing command %v, exit code %d", req.GetCmd(), code), Code: code}
	}
	return nil
}

// ServeAttach implements [streaming.Handler].
func (h streamHandler) ServeAttach(ctx context.Context, req *cri.AttachRequest, since *time.Time, client streams.Client) error {
	sizes, stop := translate(ctx, client.Resize)
	defer stop()
	return h.supervisor.Attach(ctx, req.GetContainerId(), container.Attachment{
		Stdin: client.Stdin, Stdout: client.Stdout, Stderr: client.Stderr, Resize: sizes, Since: since,
	})
}

// translate passes sizes on until stop is called. The channel that it returns is never closed.
func translate(ctx context.Context, from <-chan channels.Size) (<-chan container.Size, func()) {
	group := run.NewGroup(ctx, 0)
	to := make(chan container.Size)
	group.Go(func(ctx context.Context) {
		for {
			select {
			case <-ctx.Done():
				return
			case size, ok := <-from:
				if !ok {
					return
				}
				select {
				case to <- container.Size{Width: size.Width, Height: size.Height}:
				case <-ctx.Done():
					return
				}
			}
		}
	})
	return to, group.Stop
}

// DialPort implements [streaming.Handler]. The texts of errors are containerd's.
func (h streamHandler) DialPort(ctx context.Context, pod string, port int32) (*net.TCPConn, error) {
	if port < 1 || port > maxPort {
		return nil, fmt.Errorf("invalid port %d", port)
	}
	p, err := h.findPod(pod)
	if err != nil {
		return nil, fmt.Errorf("failed to find sandbox %q in store: %w", pod, err)
	}
	r := p.snapshot()
	netns := "host"
	if !r.HostNet {
		if netns = r.Pins.Net; !r.Ready {
			return nil, fmt.Errorf("network namespace for sandbox %q is closed", pod)
		}
	}
	conn, err := network.DialLoopback(ctx, r.Pins.Net, uint16(port))
	if err != nil {
		return nil, fmt.Errorf("failed to execute portforward in network namespace %q: failed to connect to localhost:%d inside namespace %q, %w",
			netns, port, pod, err)
	}
	return conn, nil
}
