package container

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A Size is the size of a terminal, in characters.
type Size struct{ Width, Height uint16 }

// apply sets the size of a terminal. Programs that run in it get SIGWINCH if it differs from the size before. An empty
// size is ignored.
func (s Size) apply(terminal *os.File) error {
	if s.Width == 0 || s.Height == 0 {
		return nil
	}
	rc, err := terminal.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = rc.Control(func(fd uintptr) {
		set = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: s.Height, Col: s.Width})
	})
	return errors.Join(err, set)
}

// A console is the connection on which libcontainer's init sends the terminal that it makes inside a container.
type console struct{ ours, theirs *os.File }

func newConsole() (*console, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	return &console{ours: os.NewFile(uintptr(fds[0]), "console"), theirs: os.NewFile(uintptr(fds[1]), "console")}, nil
}

// receive returns the controlling side of the terminal, nonblocking. libcontainer has sent it when the process was
// started without an error.
func (c *console) receive() (*os.File, error) {
	fds, err := receiveFiles(c.ours)
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	for _, fd := range fds[1:] {
		_ = unix.Close(fd)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		_ = unix.Close(fds[0])
		return nil, fmt.Errorf("terminal: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "terminal"), nil
}

// receiveFiles takes a message with at least one descriptor out of a socket, without waiting for one.
func receiveFiles(socket *os.File) ([]int, error) {
	_, fds, err := receive(int(socket.Fd()))
	if err == nil && len(fds) == 0 {
		err = errors.New("no descriptor was sent")
	}
	return fds, err
}

// receive takes the first message out of a socket, without waiting for one.
func receive(socket int) (text string, fds []int, err error) {
	const most = 8
	data, control := make([]byte, 4096), make([]byte, unix.CmsgSpace(most*4))
	n, c, _, _, err := unix.Recvmsg(socket, data, control, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if err != nil {
		return "", nil, os.NewSyscallError("recvmsg", err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:c])
	if err != nil {
		return "", nil, err
	}
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return string(data[:n]), fds, nil
}

func (c *console) close() {
	_ = c.ours.Close()
	_ = c.theirs.Close()
}
