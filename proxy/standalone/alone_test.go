package standalone_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/proxy/standalone"
)

// TestFaultsNameTheirFlags has every flag wrong at once. Nobody asks for the server then.
func TestFaultsNameTheirFlags(t *testing.T) {
	all := standalone.Options{
		Connect: func() (*rest.Config, error) { t.Error("the kubeconfig is read"); return nil, errors.New("none") },
		Node:    "Node_1", Mode: "ipvs", BindAddress: "localhost", NodePortAddresses: []string{"192.0.2.1"}, ClusterCIDR: []string{"::ffff:10.0.0.0/104"},
		ServiceCIDR: []string{""}, HealthzAddress: "10256", MetricsAddress: "0.0.0.0:10249",
	}
	err := standalone.Run(t.Context(), all)
	for _, want := range []string{
		`--hostname-override: "Node_1" is no name of a node`,
		`--proxy-mode: "ipvs" is no mode, want kernel or userspace`,
		`--bind-address: "localhost"`,
		`--nodeport-addresses: "192.0.2.1" is no network, want one such as 10.244.0.0/16`,
		`--cluster-cidr: "::ffff:10.0.0.0/104" is no network`,
		`--service-cluster-ip-range: "" is no network`,
		`--healthz-bind-address: "10256" is not ADDRESS:PORT, want one such as 127.0.0.1:10256`,
		`--metrics-bind-address: "0.0.0.0:10249" is not of loopback`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the faults are\n%v\nwant among them\n%s", err, want)
		}
	}
}

// What this host does not have is a fault before anybody asks for the server.
func TestFaultsOfThisHostNameTheirFlags(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	taken := l.Addr().String()
	connect := func() (*rest.Config, error) { t.Error("the kubeconfig is read"); return nil, errors.New("none") }
	for want, o := range map[string]standalone.Options{
		"--bind-address: this host does not have the address 203.0.113.254": {BindAddress: "203.0.113.254"},
		"--healthz-bind-address: listen tcp " + taken:                       {HealthzAddress: taken},
		"--metrics-bind-address: listen tcp " + taken:                       {HealthzAddress: taken, MetricsAddress: taken}, // both
	} {
		o.Connect, o.Node = connect, "n1"
		if err := standalone.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the faults are\n%v\nwant among them\n%s", err, want)
		}
	}
}

func TestTheServerIsAskedWhenTheFlagsMakeSense(t *testing.T) {
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

// TestCleanupBesideAWrongFlagIsRefused before anything is removed.
func TestCleanupBesideAWrongFlagIsRefused(t *testing.T) {
	err := standalone.Cleanup(standalone.Options{Mode: "ipvs", ServiceCIDR: []string{"x"}})
	for _, want := range []string{`--proxy-mode: "ipvs"`, `--service-cluster-ip-range: "x"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Cleanup = %v, want %s", err, want)
		}
	}
}
