package pluginregistry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/sampan-io/sampan/internal/removal"
	"github.com/sampan-io/sampan/node/volume"
)

// KubeletDir is the directory that pods of plug-ins mount, whatever the agent's own directory is.
const KubeletDir = "/var/lib/kubelet"

// maxMessage bounds the answers of plug-ins, in bytes.
const maxMessage = 1 << 20

// Sockets is a directory with sockets of plug-ins in it: the agent's own, an absolute path without links.
type Sockets string

// Local returns the path of a socket relative to the directory. Plug-ins in pods name it below [KubeletDir]. The error
// says why the socket is not in the directory.
func (s Sockets) Local(endpoint string) (string, error) {
	clean := filepath.Clean(endpoint)
	for _, dir := range []string{KubeletDir, string(s)} {
		if rest, in := strings.CutPrefix(clean, dir+"/"); in {
			return rest, nil
		}
	}
	return "", fmt.Errorf("socket %q is not in %s or %s", endpoint, KubeletDir, s)
}

// Connect returns a connection to the socket with a path relative to the directory. Nothing is sent until it is used.
func (s Sockets) Connect(path string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+path, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(s.dial),
		grpc.WithAuthority("localhost"), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(64 << 10), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	}, opts...)...)
}

// dial connects to a socket. It does not follow links that lead out of the directory, and the path may be longer than
// addresses of sockets.
func (s Sockets) dial(ctx context.Context, path string) (net.Conn, error) {
	f, err := volume.Find(string(s), path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		err = fmt.Errorf("%s is not a socket", path)
	}
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// Clean removes the sockets by which plug-ins have registered, except those of programs that still run. It needs no
// [Registry], and follows no symbolic link.
func Clean(root string) error {
	dir := filepath.Join(root, directory)
	entries, err := removal.List(dir)
	if err != nil {
		return err
	}
	left := false
	for _, e := range entries {
		if e.Type() == fs.ModeSocket && Sockets(root).listened(filepath.Join(directory, e.Name())) {
			left = true
			continue
		}
		if err := removal.Tree(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if left {
		return nil
	}
	return removal.Tree(dir)
}

// listened reports whether a program listens at a socket.
func (s Sockets) listened(path string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), notifyLimit) //nolint:forbidigo // connect does not wait: it fails if the queue is full
	defer cancel()
	conn, err := s.dial(ctx, path)
	if err != nil {
		return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, unix.EAGAIN) // its queue is full
	}
	_ = conn.Close() // nothing was sent
	return true
}

// Shorten returns text from a plug-in for a message.
func Shorten(text string) string { return cut(text, maxText) }

// Brief bounds the message of an error, which has what a plug-in says, to a number of bytes. The code of a failed call
// stays.
func Brief(err error, size int) error {
	if len(err.Error()) <= size {
		return err
	}
	if s, ok := status.FromError(err); ok {
		return status.Error(s.Code(), cut(s.Message(), size))
	}
	return errors.New(cut(err.Error(), size))
}

// cut shortens text, but not within a character.
func cut(text string, size int) string {
	if len(text) > size {
		return strings.ToValidUTF8(text[:size], "") + "…"
	}
	return text
}

const maxText = 200 // bytes
