package dns

import "golang.org/x/sys/unix"

// forceBuffer sets the size of the receive buffer of a socket, whatever the limit for programs without CAP_NET_ADMIN is.
func forceBuffer(socket uintptr) error {
	return unix.SetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, burst)
}
