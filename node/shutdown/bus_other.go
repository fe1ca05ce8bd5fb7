//go:build !linux || portable

package shutdown

import (
	"errors"
	"net"

	"github.com/godbus/dbus/v5"
)

// speak is not supported: only Linux has logind.
func speak(*net.UnixConn, ...dbus.ConnOption) (*dbus.Conn, error) { return nil, errors.ErrUnsupported }
