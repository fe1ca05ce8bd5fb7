package forward

import (
	"context"
	"errors"
	"net/netip"
	"testing"
)

// TestDialerChecksAddresses checks what holds for all connections, whatever name was resolved to an address.
func TestDialerChecksAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"10.0.0.5:80":                 true,
		"192.168.1.1:443":             true,
		"[fd00::5]:80":                true,
		"8.8.8.8:53":                  true,
		"127.0.0.1:6443":              false,
		"127.1.2.3:80":                false,
		"169.254.169.254:80":          false,
		"0.0.0.0:80":                  false,
		"255.255.255.255:80":          false,
		"224.0.0.1:80":                false,
		"[::1]:80":                    false,
		"[::]:80":                     false,
		"[fe80::1%eth0]:80":           false,
		"[ff02::1]:80":                false,
		"[::ffff:127.0.0.1]:80":       false,
		"[::ffff:169.254.0.1]:80":     false,
		"[::ffff:255.255.255.255]:80": false,
		"nonsense":                    false,
	} {
		if err := new(Options).checkDialed(t.Context(), "tcp", address, nil); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestDialerAsksRefuse checks that an address in each notation is refused before anything is sent to it.
func TestDialerAsksRefuse(t *testing.T) {
	invented := errors.New("the address is invented")
	o := Options{Refuse: func(_ context.Context, a netip.Addr) error {
		if netip.MustParsePrefix("10.244.0.0/16").Contains(a) {
			return invented
		}
		return nil
	}}
	for address, want := range map[string]error{"10.244.0.5:80": invented, "[::ffff:10.244.0.5]:80": invented, "10.245.0.5:80": nil, "127.0.0.1:80": errNotAllowed} {
		if err := o.checkDialed(t.Context(), "tcp", address, nil); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", address, err, want)
		}
	}
}
