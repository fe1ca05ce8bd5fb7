package local

import (
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"
)

func pair(text string) Pair {
	p, err := ParsePair(text)
	if err != nil {
		panic(err)
	}
	return p
}

func TestPairsAreKeptAsTheyWereWritten(t *testing.T) {
	for _, text := range []string{"10.77.0.0/16", "fd00::/56", "10.77.0.0/16,fd00::/56", "fd00::/56,10.77.0.0/16"} {
		data, err := json.Marshal(Networks{Pods: pair(text)})
		if want := `{"pods":"` + text + `","services":""}`; err != nil || string(data) != want {
			t.Errorf("saved as %s, %v, want %s", data, err, want)
		}
		var back Networks
		if err := json.Unmarshal(data, &back); err != nil || back.Pods != pair(text) || back.Services.IsValid() {
			t.Errorf("%s is read as %v, %v", data, back, err)
		}
	}
	for _, text := range []string{"", "10", "10.1.0.0/16,", ",", "10.1.0.0/16, fd00::/56", "10.1.0.0/16,fd00::/56,10.2.0.0/16"} {
		if p, err := ParsePair(text); err == nil || !strings.Contains(err.Error(), "must be a network") {
			t.Errorf("%q is read as %v, %v", text, p, err)
		}
	}
}

// Each error names the flag and the accepted values.
func TestNetworksThatCannotBe(t *testing.T) {
	for _, tt := range []struct {
		pods, services string
		family         IPFamily
		want           string
	}{
		{pods: "10.1.0.0/16,10.2.0.0/16", want: "--pod-network: must be one network, or one IPv4 and one IPv6 network, got 10.1.0.0/16,10.2.0.0/16"},
		{services: "fd00::/112,fd01::/112", want: "--service-network: must be one network, or one IPv4 and one IPv6 network, got fd00::/112,fd01::/112"},
		{services: "fd00::/96", want: "--service-network: must be an IPv6 network of 108 to 120 bits such as fd00:10:96::/112, got fd00::/96: its prefix has 96 bits"},
		{services: "fd00::/126", want: "must be an IPv6 network of 108 to 120 bits"},
		{pods: "fd00::/12", want: "--pod-network: must be an IPv6 network of 16 to 112 bits such as fd00:10:244::/56, got fd00::/12"},
		{pods: "fd00::/120", want: "must be an IPv6 network of 16 to 112 bits"},
		{pods: "10.1.0.0/16,fd00::1/56", want: "--pod-network: must be an IPv6 network of 16 to 112 bits such as fd00:10:244::/56, got fd00::1/56: it has bits set after the prefix; use fd00::/56"},
		{pods: "::ffff:10.1.0.0/112", want: "IPv4-mapped IPv6"},
		{pods: "fe80::/64", want: "it contains link-local addresses"},
		{pods: "ff05::/64", want: "it contains multicast addresses"},
		{pods: "::/96", want: "it contains "},
		{pods: "127.0.0.0/8", want: "--pod-network: must be an IPv4 network of 8 to 24 bits such as 10.244.0.0/16, got 127.0.0.0/8: it contains loopback addresses"},
		{services: "169.254.0.0/16", want: "it contains link-local addresses"},
		{pods: "224.0.0.0/8", want: "it contains multicast addresses"},
		{pods: "10.1.0.0/16,fd00::/56", services: "10.2.0.0/16", want: "--pod-network 10.1.0.0/16,fd00::/56 and --service-network 10.2.0.0/16 must have the same IP families in the same order"},
		{pods: "10.1.0.0/16,fd00::/56", services: "fd01::/112,10.2.0.0/16", want: "in the same order"},
		{pods: "10.1.0.0/16", services: "fd01::/112", want: "in the same order"},
		{pods: "10.1.0.0/16,fd00::/56", services: "10.2.0.0/16,fd00::ff:0:0:0:0/112", want: "--pod-network fd00::/56 and --service-network fd00:0:0:ff::/112 overlap"},
		{family: "IPv4", want: `--ip-family: must be ipv4, ipv6 or dual, got "IPv4"`},
		{pods: "10.1.0.0/16", family: DualStack, want: "--pod-network is 10.1.0.0/16, which does not match --ip-family=dual"},
		{services: "fd00::/112", family: IPv4, want: "--service-network is fd00::/112, which does not match --ip-family=ipv4"},
	} {
		s := Settings{IPFamily: tt.family}
		if tt.pods != "" {
			s.Pods = pair(tt.pods)
		}
		if tt.services != "" {
			s.Services = pair(tt.services)
		}
		if err := s.check(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("check(%+v) = %v, want %q", s.Networks, err, tt.want)
		}
	}
}

func TestSettleChoosesNetworksOfTheFamilies(t *testing.T) {
	ula := netip.MustParsePrefix("fd00::/8")
	for _, tt := range []struct {
		pods, services string
		family         IPFamily
		simulated      int
		want           string // the families, in their order
	}{
		{want: "4"},
		{family: IPv4, want: "4"},
		{family: IPv6, want: "6"},
		{family: DualStack, want: "46"},
		{pods: "fd07::/56", want: "6"},
		{pods: "fd07::/56,10.77.0.0/16", want: "64"},
		{pods: "fd07::/56,10.77.0.0/16", family: DualStack, want: "64"},
		{services: "10.78.0.0/16,fd08::/112", want: "46"},
		{pods: "10.77.0.0/16,fd07::/56", services: "10.78.0.0/16,fd08::/112", want: "46"},
		{family: DualStack, simulated: 5000, want: "46"},
		{family: IPv6, simulated: 5000, want: "6"},
		{pods: "fd07::/64", simulated: 5000, want: "6"},
	} {
		p := profile(t)
		if err := os.MkdirAll(p.DataDir, 0o700); err != nil {
			t.Fatal(err)
		}
		asked := Settings{IPFamily: tt.family, NodeName: "boat", SimulatedNodes: tt.simulated}
		if tt.pods != "" {
			asked.Pods = pair(tt.pods)
		}
		if tt.services != "" {
			asked.Services = pair(tt.services)
		}
		s, err := p.Settle(asked, nil)
		if err != nil {
			t.Errorf("Settle(%+v) = %v", asked, err)
			continue
		}
		for which, got := range map[Pair]Pair{s.Pods: asked.Pods, s.Services: asked.Services} {
			families := ""
			for _, n := range which.All() {
				families += map[bool]string{true: "4", false: "6"}[n.Addr().Is4()]
				if n.Addr().Is6() && !ula.Overlaps(n) {
					t.Errorf("%v was chosen, want unique local addresses", n)
				}
			}
			if families != tt.want || got.IsValid() && which != got {
				t.Errorf("Settle(%+v) chose %v, want the families %s", asked, which, tt.want)
			}
		}
		if err := (Settings{Networks: s.Networks}).check(); err != nil {
			t.Errorf("what was chosen is refused: %v", err)
		}
		if err := p.Keep(s); err != nil {
			t.Fatal(err)
		}
		for _, again := range []Settings{{}, {IPFamily: s.Pods.Family()}, {Networks: s.Networks}} {
			if next, err := p.Settle(again, nil); err != nil || next.Networks != s.Networks {
				t.Errorf("at the next start, asked for %+v: %v, %v, want %v", again.Networks, next.Networks, err, s.Networks)
			}
		}
	}
}

func TestTwoClustersHaveDifferentNetworksOfIPv6(t *testing.T) {
	one, err := FreeNetworks([]bool{true}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := FreeNetworks([]bool{true}, []netip.Prefix{netip.PrefixFrom(one.Pods[0].Addr(), 48)}, nil, nil)
	if err != nil || one.Pods[0].Overlaps(other.Pods[0]) || one.Services[0].Overlaps(other.Services[0]) || one.Pods[0].Overlaps(one.Services[0]) {
		t.Errorf("%v and %v, %v", one, other, err)
	}
}

func TestNetworksWithAnAddressOfTheHost(t *testing.T) {
	p := profile(t)
	for _, networks := range []Networks{{Pods: pair("127.0.0.0/16")}, {Services: pair("127.0.0.0/16")}} {
		if err := (Settings{Networks: networks}).checkHost(p.Bridge()); err == nil || !strings.Contains(err.Error(), "contains the address 127.0.0.1 of this host") {
			t.Errorf("checkHost(%v) = %v", networks, err)
		}
	}
	if err := (Settings{Networks: Networks{Pods: pair("203.0.113.0/24")}}).checkHost(p.Bridge()); err != nil {
		t.Error(err)
	}
}

// TestANetworkThatWasTakenMeanwhile is about a cluster whose bridge address another link has now.
func TestANetworkThatWasTakenMeanwhile(t *testing.T) {
	p := profile(t)
	for pods, want := range map[string]string{
		"127.0.0.0/16":   "the pod network 127.0.0.0/16 of the cluster in " + p.DataDir + " is in use: link lo of this host has its first address; ",
		"203.0.113.0/24": "",
	} {
		if err := p.CheckBridge(pair(pods)); want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("CheckBridge(%s) = %v, want %q", pods, err, want)
		}
	}
}
