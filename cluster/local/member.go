package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
)

// A Member is this machine as a node of a cluster whose API server is on another machine.
type Member struct {
	Server string `json:"server"` // URL of the API server

	// ID is a random text by which this machine differs from another one that claims the same name.
	ID string `json:"id"`

	// NodeIP are the addresses of this machine at which the others reach it, see [ParseAddresses]. Empty means the
	// address from which this machine reaches the server.
	NodeIP string `json:"nodeIP,omitempty"`

	// Settings are the flags that the node was joined with, and the settings of the cluster that it needs.
	Settings Settings `json:"settings"`

	// Networks are those of the pods of this node; empty until the cluster gives them.
	Networks []netip.Prefix `json:"networks,omitempty"`
}

func (p Profile) memberFile() string { return filepath.Join(p.DataDir, "member.json") }

// PKI returns the directory of keys and certificates.
func (p Profile) PKI() string { return filepath.Join(p.DataDir, "pki") }

// Member returns how this machine is a node of another cluster, and whether it is.
func (p Profile) Member() (m Member, found bool, err error) {
	if _, err := os.Lstat(p.memberFile()); errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	err = read(p.memberFile(), &m)
	if _, ok := errors.AsType[*damageError](err); ok {
		err = fmt.Errorf("%w; restore the file from a copy; or `sampan down --purge%s --data-dir=%s` removes the node with its data, and then `sampan join` can make it again", err, p.NameFlag(), p.DataDir)
	}
	if err != nil {
		return Member{}, false, fmt.Errorf("reading how this machine is a node of a cluster: %w", err)
	}
	return m, true, nil
}

// Again returns the settings for another start of a node, after a look at what is asked for this time. An empty nodeIP keeps the
// addresses. The error names a flag that cannot be changed or is wrong.
func (m Member) Again(asked Settings, nodeIP string, p Profile) (Member, error) {
	if asked.NodeName != "" && asked.NodeName != m.Settings.NodeName {
		return m, fmt.Errorf("--node-name of this node is %s and cannot be changed to %s; remove the node with `sampan leave --name=%s` first", m.Settings.NodeName, asked.NodeName, p.Name)
	}
	s, err := m.Settings.with(asked, p)
	if err != nil {
		return m, err
	}
	if nodeIP != "" {
		if err := CheckNodeIP(nodeIP); err != nil {
			return m, err
		}
		m.NodeIP = nodeIP
	}
	m.Settings = s
	return m, errors.Join(s.Images.check(), s.check())
}

// KeepMember saves how this machine is a node of another cluster.
func (p Profile) KeepMember(m Member) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		if err = os.MkdirAll(p.DataDir, 0o700); err == nil {
			err = replace(p.memberFile(), data)
		}
	}
	if err != nil {
		return fmt.Errorf("saving how this machine is a node of a cluster: %w", err)
	}
	return nil
}

// HasCluster reports whether the data directory is that of a cluster that runs on this machine.
func (p Profile) HasCluster() bool {
	_, err := os.Lstat(p.settingsFile())
	return err == nil
}

// CheckNodeIP returns an error if addresses are not those of this machine, at which others reach it.
func CheckNodeIP(text string) error {
	if _, err := OwnAddresses(text); err != nil {
		return fmt.Errorf("--node-ip: %w", err)
	}
	return nil
}

// OwnAddresses reads addresses as [ParseAddresses] does. It is an error if this machine does not have one of them.
func OwnAddresses(text string) ([]netip.Addr, error) {
	all, err := ParseAddresses(text)
	if err != nil {
		return nil, err
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of this machine: %w", err)
	}
	for _, a := range all {
		if !slices.ContainsFunc(own, func(o net.Addr) bool {
			n, ok := o.(*net.IPNet)
			return ok && n.IP.Equal(a.AsSlice())
		}) {
			return nil, fmt.Errorf("this machine does not have the address %s", a)
		}
	}
	return all, nil
}

// OtherNode returns the name of the profile under which this machine is a node of the same cluster already, or "". Machines in
// other network namespaces are other machines.
func (p Profile) OtherNode(server string) (string, error) {
	running, _ := p.running() // nothing is known of a cluster whose files cannot be read
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return "", err
	}
	for _, f := range running {
		if f.Name == p.Name || !f.Instance.Member || f.Instance.Server != server {
			continue
		}
		if there, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", f.Instance.Process.PID)); err == nil && there == here {
			return f.Name, nil
		}
	}
	return "", nil
}

// HostName returns the name that the node of this machine has by default.
func HostName() (string, error) { return hostName() }
