package local

import (
	"fmt"
	"net/netip"
)

// Where the service proxy of a node serves its health and its metrics, as kube-proxy does.
const (
	DefaultProxyHealth  = "0.0.0.0:10256"
	DefaultProxyMetrics = "127.0.0.1:10249"
)

// NoAddress is an address at which nothing is served.
const NoAddress = "none"

// bindable returns an error if the value of a flag is not an address to listen at.
func bindable(flag, value string) error {
	if value == "" || value == NoAddress {
		return nil
	}
	if at, err := netip.ParseAddrPort(value); err != nil || at.Port() == 0 {
		return fmt.Errorf("--%s: must be IP:PORT, such as %s, or none, got %q", flag, DefaultProxyHealth, value)
	}
	return nil
}
