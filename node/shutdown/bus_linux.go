//go:build !portable

package shutdown

import (
	"net"

	"github.com/godbus/dbus/v5"
)

// speak makes a connection to a bus of one to its socket.
func speak(c *net.UnixConn, options ...dbus.ConnOption) (*dbus.Conn, error) {
	return dbus.ConnectUnix(c, options...)
}
