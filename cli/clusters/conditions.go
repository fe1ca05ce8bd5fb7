package clusters

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/cluster/join"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/internal/names"
)

// A nodeCondition is a condition of a node that is not as it should be.
type nodeCondition struct {
	Node    string                   `json:"node"`
	Type    corev1.NodeConditionType `json:"type"`
	Status  corev1.ConditionStatus   `json:"status"`
	Reason  string                   `json:"reason,omitempty"`
	Message string                   `json:"message,omitempty"`
}

// String returns a line for users.
func (c nodeCondition) String() string {
	if c.Type == names.FirewallDropsPods {
		return fmt.Sprintf("the firewall of node %s drops packets of pods: %s", c.Node, printable(c.Message))
	}
	s := fmt.Sprintf("node %s gets no new pods: %s is %s", c.Node, c.Type, c.Status)
	if c.Message != "" {
		s += ": " + printable(c.Message)
	}
	return s
}

// printable returns a text that a node has chosen, without control characters for the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// badConditions returns the conditions of nodes with which pods are not started or may be ended: not Ready, or under pressure, or
// without a network; and those of nodes whose firewall drops packets of pods. The pressures of a node that is not known to be Ready are not known either.
func badConditions(nodes []*corev1.Node) []nodeCondition {
	var bad []nodeCondition
	for _, n := range nodes {
		ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "the node has not reported its status yet"}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				ready = c
			}
		}
		add := func(c corev1.NodeCondition) {
			bad = append(bad, nodeCondition{Node: n.Name, Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
		if ready.Status != corev1.ConditionTrue {
			add(ready)
		}
		for _, c := range n.Status.Conditions {
			switch c.Type {
			case corev1.NodeDiskPressure, corev1.NodeMemoryPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable, names.FirewallDropsPods:
				if c.Status == corev1.ConditionTrue {
					add(c)
				}
			}
		}
	}
	return bad
}

// conditionsLimit is how long reading the nodes may take.
const conditionsLimit = 5 * time.Second

// conditions reads the nodes of a running cluster, or the node that this machine is of another one, and returns their bad conditions.
func conditions(ctx context.Context, p local.Profile) ([]nodeCondition, error) {
	ctx, cancel := context.WithTimeout(ctx, conditionsLimit)
	defer cancel()
	nodes, err := readNodes(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("the conditions of the nodes cannot be read: %w", err)
	}
	return badConditions(nodes), nil
}

func readNodes(ctx context.Context, p local.Profile) ([]*corev1.Node, error) {
	m, member, err := p.Member()
	switch {
	case err != nil:
		return nil, err
	case member:
		certificates, err := join.Open(p.PKI(), m.Settings.NodeName)
		if err != nil {
			return nil, err
		}
		api, err := certificates.Client(m.Server, "sampan", nil)
		if err != nil {
			return nil, err
		}
		node, err := client.Nodes.Get(ctx, api, "", m.Settings.NodeName)
		return []*corev1.Node{node}, err
	}
	api, err := administrator(p)
	if err != nil {
		return nil, err
	}
	nodes, _, err := client.Nodes.List(ctx, api, "", metav1.ListOptions{})
	return nodes, err
}

// administrator returns a client for the API server of a running cluster, with the saved credentials.
func administrator(p local.Profile) (*client.REST, error) {
	saved, ok := p.SavedCredentials()
	if !ok {
		return nil, errors.New("there are no credentials in " + p.Kubeconfig())
	}
	return client.NewREST(&rest.Config{
		Host: saved.Server, TLSClientConfig: rest.TLSClientConfig{CAData: saved.CA, CertData: saved.Cert, KeyData: saved.Key},
	}, client.RESTOptions{})
}

// uncertified returns why clients with a kubeconfig refuse the API server of a running cluster, whose certificate does not have the
// address; "" if it has, and if the cluster does not run.
func uncertified(ctx context.Context, p local.Profile, kubeconfig []byte) string {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	saved, ok := p.SavedCredentials()
	if err != nil || !ok {
		return ""
	}
	wanted, err := url.Parse(config.Host)
	if err != nil {
		return ""
	}
	at, err := url.Parse(saved.Server)
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, conditionsLimit)
	defer cancel()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(saved.CA)
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", at.Host)
	if err != nil {
		return ""
	}
	defer conn.Close()
	secure, is := conn.(*tls.Conn)
	if !is || len(secure.ConnectionState().PeerCertificates) == 0 {
		return ""
	}
	if err := secure.ConnectionState().PeerCertificates[0].VerifyHostname(wanted.Hostname()); err != nil {
		return fmt.Sprintf("clients will refuse the API server by this address: %v; start the cluster with --advertise-address, so that its certificate has it", err)
	}
	return ""
}

// refusedWrites returns why the API server of a running cluster refuses writes, or "". A node of another machine's cluster
// has no right to find out.
func refusedWrites(ctx context.Context, p local.Profile) string {
	if _, member, err := p.Member(); err != nil || member {
		return ""
	}
	api, err := administrator(p)
	if err != nil {
		return ""
	}
	return printable(api.RefusedWrites(ctx))
}

// warnOfRefusedWrites prints why the API server of a cluster that is up refuses writes, if it does.
func warnOfRefusedWrites(cmd *cobra.Command, p local.Profile) {
	if why := refusedWrites(cmd.Context(), p); why != "" {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Warning: the server refuses writes: %s\n", why)
	}
}

// warnOfStart prints the limitations since the cluster or node was started.
func warnOfStart(cmd *cobra.Command, i local.Instance) {
	for _, w := range i.Warnings {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %s\n", printable(w))
	}
}

// warnOfConditions prints the bad conditions of the nodes of a cluster that is up.
func warnOfConditions(cmd *cobra.Command, p local.Profile) {
	bad, err := conditions(cmd.Context(), p)
	for _, line := range conditionLines(bad, err) {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %s\n", line)
	}
}

// conditionLines returns bad conditions as lines for users: not more than fit on a screen.
func conditionLines(bad []nodeCondition, err error) []string {
	const most = 12
	var lines []string
	for i, c := range bad {
		if i == most {
			lines = append(lines, fmt.Sprintf("%d more: see `kubectl get nodes`", len(bad)-i))
			break
		}
		lines = append(lines, c.String())
	}
	if err != nil {
		lines = append(lines, err.Error())
	}
	return lines
}
