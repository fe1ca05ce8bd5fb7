package standalone_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/proxy/standalone"
)

// TestFaultsNameTheirFlags has every flag wrong at once. The API server is not contacted then.
func TestFaultsNameTheirFlags(t *testing.T) {
	all := standalone.Options{
		Connect: func() (*rest.Config, error) { t.Error("the kubeconfig is read"); return nil, errors.New("none") },
		Node:    "Node_1", Mode: "ipvs", BindAddress: "localhost", NodePortAddresses: []string{"192.0.2.1"}, ClusterCIDR: []string{"::ffff:10.0.0.0/104"},
		ServiceCIDR: []string{""}, HealthzAddress: "10256", MetricsAddress: "0.0.0.0:10249",
	}
	err := standalone.Run(t.Context(), all)
	for _, want := range []string{
		`--hostname-override: must be a DNS-1123 subdomain (lower-case letters, digits, dots and hyphens), got "Node_1"`,
		`--proxy-mode: must be kernel or userspace, got "ipvs"`,
		`--bind-address: must be an address of this host that others can reach, got "localhost"`,
		`--nodeport-addresses: must be a network such as 10.244.0.0/16 or fd00::/64, got "192.0.2.1"`,
		`--cluster-cidr: must be a network such as 10.244.0.0/16 or fd00::/64, got "::ffff:10.0.0.0/104"`,
		`--service-cluster-ip-range: must be a network such as 10.244.0.0/16 or fd00::/64, got ""`,
		`--healthz-bind-address: must be ADDRESS:PORT, such as 127.0.0.1:10256, got "10256"`,
		`--metrics-bind-address: must be a loopback address, because anyone could read elsewhere, got "0.0.0.0:10249"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the faults are\n%v\nwant among them\n%s", err, want)
		}
	}
}

// An address that this host does not have is an error before the API server is contacted.
func TestFaultsOfThisHostNameTheirFlags(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	taken := l.Addr().String()
	connect := func() (*rest.Config, error) { t.Error("the kubeconfig is read"); return nil, errors.New("none") }
	for want, o := range map[string]standalone.Options{
		"--bind-address: must be an address of this host, got 203.0.113.254": {BindAddress: "203.0.113.254"},
		"--healthz-bind-address: listen tcp " + taken:                        {HealthzAddress: taken},
		"--metrics-bind-address: listen tcp " + taken:                        {HealthzAddress: taken, MetricsAddress: taken}, // both
	} {
		o.Connect, o.Node = connect, "n1"
		if err := standalone.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the faults are\n%v\nwant among them\n%s", err, want)
		}
	}
}

func TestServerIsContactedAfterFlagChecks(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = free.Close()
	none := errors.New("no kubeconfig")
	o := standalone.Options{Node: "n1", HealthzAddress: free.Addr().String(), Connect: func() (*rest.Config, error) { return nil, none }}
	if err := standalone.Run(t.Context(), o); !errors.Is(err, none) {
		t.Errorf("without a kubeconfig: %v", err)
	}
	o.Connect = func() (*rest.Config, error) {
		return &rest.Config{Host: "ftp://x", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("x")}}, nil
	}
	// The address is free again.
	if err := standalone.Run(t.Context(), o); err == nil || strings.Contains(err.Error(), "--") {
		t.Errorf("without an authority: %v", err)
	}
}

// TestCleanupRefusesWrongFlags before anything is removed.
func TestCleanupRefusesWrongFlags(t *testing.T) {
	err := standalone.Cleanup(standalone.Options{Mode: "ipvs", ServiceCIDR: []string{"x"}})
	for _, want := range []string{`--proxy-mode: must be kernel or userspace, got "ipvs"`, `--service-cluster-ip-range: must be a network such as 10.244.0.0/16 or fd00::/64, got "x"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Cleanup = %v, want %s", err, want)
		}
	}
}
