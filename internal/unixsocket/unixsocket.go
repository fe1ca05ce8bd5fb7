// Package unixsocket reads the addresses of unix sockets in flags.
package unixsocket

import (
	"fmt"
	"strings"
)

// Path returns the path of the unix socket of an endpoint: unix:///PATH, or an absolute path.
func Path(endpoint string) (string, error) {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok && strings.Contains(endpoint, "://") || !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("must be the address of a unix socket such as unix:///run/containerd/containerd.sock, got %q", endpoint)
	}
	return path, nil
}
