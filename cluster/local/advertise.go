package local

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ParseAddresses reads an address of a machine, or one of each IP family separated by a comma.
func ParseAddresses(text string) ([]netip.Addr, error) {
	if text == "" {
		return nil, nil
	}
	var all []netip.Addr
	for part := range strings.SplitSeq(text, ",") {
		a, err := netip.ParseAddr(part)
		if err != nil || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.Is4In6() || a.Zone() != "" {
			return nil, fmt.Errorf("must be an IP address at which other machines reach this one, or one of each IP family separated by a comma, got %q", text)
		}
		for _, other := range all {
			if other.Is4() == a.Is4() {
				return nil, fmt.Errorf("must have at most one address of each IP family, got %q", text)
			}
		}
		all = append(all, a)
	}
	return all, nil
}

// Advertised returns the addresses of AdvertiseAddress, in the order of the pod networks.
func (s Settings) Advertised() []netip.Addr {
	all, err := ParseAddresses(s.AdvertiseAddress)
	if err != nil {
		return nil // it was checked
	}
	if len(all) == 2 && s.Pods.IsValid() && all[0].Is4() != s.Pods[0].Addr().Is4() {
		all[0], all[1] = all[1], all[0]
	}
	return all
}

func (s Settings) checkAdvertise() error {
	if s.AdvertiseAddress == "" || s.AdvertiseAddress == NoAdvertiseAddress {
		return nil
	}
	if _, err := ParseAddresses(s.AdvertiseAddress); err != nil {
		return fmt.Errorf("--advertise-address: %w", err)
	}
	if s.Simulated() {
		return errors.New("--advertise-address: must not be set for simulated nodes: other machines cannot join them")
	}
	return nil
}
