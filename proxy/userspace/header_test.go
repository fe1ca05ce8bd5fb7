package userspace

import (
	"net/netip"
	"testing"
)

// The first two are the examples of section 2.1 of the specification; those of version 2
// are put together from its tables in section 2.2.
func TestHeader(t *testing.T) {
	at := netip.MustParseAddrPort
	tests := []struct {
		name     string
		version  int
		from, to netip.AddrPort
		want     string
	}{
		{"worst case of TCP/IPv4", 1, at("255.255.255.255:65535"), at("255.255.255.255:65535"), "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n"},
		{
			"worst case of TCP/IPv6", 1,
			at("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"), at("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"),
			"PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
		},
		{"line of section 2.1", 1, at("192.168.0.1:56324"), at("192.168.0.11:443"), "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n"},
		{
			"binary IPv4", 2, at("192.168.0.1:56324"), at("192.168.0.11:443"),
			"\x0D\x0A\x0D\x0A\x00\x0D\x0A\x51\x55\x49\x54\x0A\x21\x11\x00\x0C\xC0\xA8\x00\x01\xC0\xA8\x00\x0B\xDC\x04\x01\xBB",
		},
		{
			"binary IPv6", 2, at("[2001:db8::1]:56324"), at("[2001:db8::b]:443"),
			"\x0D\x0A\x0D\x0A\x00\x0D\x0A\x51\x55\x49\x54\x0A\x21\x21\x00\x24" +
				"\x20\x01\x0D\xB8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
				"\x20\x01\x0D\xB8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0B\xDC\x04\x01\xBB",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := appendHeader(nil, tt.version, tt.from, tt.to)
			if string(got) != tt.want {
				t.Errorf("header of version %d is %q, want %q", tt.version, got, tt.want)
			}
			if longest := 107; tt.version == 1 && len(got) > longest {
				t.Errorf("%d bytes, and receivers take %d", len(got), longest)
			}
		})
	}
}
