package webhook

import (
	"context"
	"errors"
	"net/netip"
	"testing"
)

// TestDialerChecksAddresses checks which addresses of a service are dialed, whatever name was resolved to them.
func TestDialerChecksAddresses(t *testing.T) {
	invented := errors.New("the address is invented")
	refuse := func(_ context.Context, a netip.Addr) error {
		if netip.MustParsePrefix("10.244.0.0/16").Contains(a) {
			return invented
		}
		return nil
	}
	check := (&Options{Refuse: refuse}).checkDialed
	for address, want := range map[string]string{
		"10.244.0.5:443":          invented.Error(),
		"[::ffff:10.244.0.5]:443": invented.Error(),
		"127.0.0.1:443":           "address not allowed",
		"169.254.169.254:80":      "address not allowed",
		"[::1]:443":               "address not allowed",
		"10.245.0.5:443":          "",
	} {
		got := ""
		if err := check(t.Context(), "tcp", address, nil); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}
