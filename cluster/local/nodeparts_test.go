package local

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestDefaultMask(t *testing.T) {
	for pods, want := range map[int]int{0: 24, 1: 24, 110: 24, 253: 24, 254: 23, 500: 23, 509: 23, 510: 22, 1000: 22} {
		if got := defaultMask(pods); got != want {
			t.Errorf("%d pods: /%d, want /%d", pods, got, want)
		}
		if room := PodRoom([]netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), defaultMask(pods))}); room < pods {
			t.Errorf("%d pods have room for %d", pods, room)
		}
	}
}

func TestNodeNetworks(t *testing.T) {
	pods, err := ParsePair("10.244.0.0/16,fd00:244::/56")
	if err != nil {
		t.Fatal(err)
	}
	for mask, want := range map[int]string{
		0:  "[10.244.2.0/24 fd00:244:0:2::/64] 253",
		23: "[10.244.4.0/23 fd00:244:0:2::/64] 509",
		26: "[10.244.0.128/26 fd00:244:0:2::/64] 61",
	} {
		s := Settings{NodeMaskSize: mask, Networks: Networks{Pods: pods}}
		if got := fmt.Sprint(s.NodeNetworks(2), PodRoom(s.NodeNetworks(2))); got != want {
			t.Errorf("mask %d: %s, want %s", mask, got, want)
		}
	}
}

func TestNodeRoom(t *testing.T) {
	pods, err := ParsePair("10.1.0.0/24")
	if err != nil {
		t.Fatal(err)
	}
	s := Settings{NodeMaskSize: 23, Networks: Networks{Pods: pods}}
	want := "--node-cidr-mask-size: the pod network 10.1.0.0/24 is too small for parts of /23: pass a larger one with --pod-network, or a longer mask"
	if err := s.nodeRoom(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if pods, err = ParsePair("fd00:1::/48"); err != nil {
		t.Fatal(err)
	}
	s = Settings{NodeMaskSize: 23, Networks: Networks{Pods: pods}}
	want = "--node-cidr-mask-size: is the length of parts of an IPv4 pod network, and the pod network is fd00:1::/48; parts of an IPv6 network are /64"
	if err := s.nodeRoom(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := (Settings{NodeMaskSize: 30}).check(); err == nil {
		t.Error("a mask of 30 bits is accepted")
	}
	if got, err := (Settings{NodeMaskSize: 23, NodeName: "n"}).with(Settings{NodeMaskSize: 22}, Profile{}); err == nil {
		t.Errorf("the mask became %d", got.NodeMaskSize)
	}
}
