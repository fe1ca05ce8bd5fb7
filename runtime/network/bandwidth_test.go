package network

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sampan-io/sampan/internal/nstest"
)

func TestBandwidthIsRead(t *testing.T) {
	tests := []struct {
		ingress, egress string
		want            Bandwidth
		fault           string
	}{
		{"", "", Bandwidth{}, ""},
		{"1M", "", Bandwidth{Ingress: 1_000_000}, ""},
		{"1k", "1P", Bandwidth{1000, 1_000_000_000_000_000}, ""},
		{"999", "", Bandwidth{}, "ingress-bandwidth: \"999\": resource is unreasonably small (< 1kbit)"},
		{"1M", "-5M", Bandwidth{}, "egress-bandwidth: \"-5M\": resource is unreasonably small"},
		{"1M", "1000001G", Bandwidth{}, "resource is unreasonably large (> 1Pbit)"},
		{"1E300", "", Bandwidth{}, "ingress-bandwidth"},
		{"fast", "", Bandwidth{}, "ingress-bandwidth: \"fast\": quantities must match"},
	}
	for _, tt := range tests {
		a := map[string]string{}
		if tt.ingress != "" {
			a[ingressAnnotation] = tt.ingress
		}
		if tt.egress != "" {
			a[egressAnnotation] = tt.egress
		}
		got, err := BandwidthOf(a)
		if tt.fault == "" && err != nil || tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)) || got != tt.want {
			t.Errorf("%q and %q: %+v, %v", tt.ingress, tt.egress, got, err)
		}
	}
}

func TestLimitsOfEverySizeAreAccepted(t *testing.T) {
	nstest.NeedRoot(t)
	h, err := netlink.NewHandle()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "limited"}, PeerName: "other"}
	if err := h.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.LinkDel(link) }()
	for bits := uint64(leastBandwidth); bits <= mostBandwidth; bits *= 10 {
		if err := limit(h, link, bits); err != nil {
			t.Error(err)
			continue
		}
		all, err := h.QdiscList(link)
		if err != nil {
			t.Fatal(err)
		}
		tbf, is := all[0].(*netlink.Tbf)
		if !is || tbf.Rate != bits/8 || tbf.Buffer == 0 || tbf.Limit < leastBurst {
			t.Errorf("for %d bits a second the kernel has %+v", bits, all[0])
		}
	}
}
