package local

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultName is the default of --name.
const DefaultName = "sampan"

// A Profile is a cluster of this machine, running or not.
type Profile struct {
	Name    string
	DataDir string // what survives: objects, keys, images, volumes, logs
	RunDir  string // files that do not survive a boot: sockets, pids, namespaces

	// Default is the data directory that the name has by default. If it is empty, [Profile.Record] records nothing.
	Default string
}

// NewProfile returns the profile of a cluster. An empty name means DefaultName;
// an empty dataDir means /var/lib/sampan/NAME for root and a directory below
// $XDG_DATA_HOME for others.
func NewProfile(name, dataDir string) (Profile, error) {
	if name == "" {
		name = DefaultName
	}
	if err := checkName(name); err != nil {
		return Profile{}, err
	}
	data, run := "/var/lib/sampan", "/run/sampan"
	if runtime.GOOS != "linux" {
		run = "/var/run/sampan"
	}
	if os.Getuid() != 0 {
		home, err := os.UserHomeDir()
		if err != nil {
			return Profile{}, fmt.Errorf("finding a directory for the cluster's data: %w; pass one with --data-dir", err)
		}
		data = filepath.Join(envOr("XDG_DATA_HOME", filepath.Join(home, ".local", "share")), "sampan")
		run = filepath.Join(envOr(runtimeDirVariable, data), runName)
	}
	p := Profile{Name: name, DataDir: filepath.Join(data, name), RunDir: filepath.Join(run, name), Default: filepath.Join(data, name)}
	if dataDir != "" {
		abs, err := filepath.Abs(dataDir)
		if err != nil {
			return Profile{}, fmt.Errorf("data directory %q: %w", dataDir, err)
		}
		p.DataDir = abs
	}
	return p, nil
}

// checkName returns an error if no cluster can have the name.
func checkName(name string) error {
	if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
		return fmt.Errorf("--name: must be 1 to %[2]d lower-case letters, digits and '-', beginning and ending with a letter or digit, got %[1]q", name, validation.DNS1123LabelMaxLength)
	}
	if name == runName {
		return fmt.Errorf("--name: %s is the name of a directory of Sampan's own; choose another name", name)
	}
	return nil
}

// runName is the directory of the run directories of a user. It can be beside the data directories.
const runName = "sampan-run"

// runtimeDirVariable names the directory for the run directories of users other than root.
const runtimeDirVariable = "XDG_RUNTIME_DIR"

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// Context returns the name of the cluster in the kubeconfig.
func (p Profile) Context() string {
	if p.Name == DefaultName {
		return p.Name
	}
	return "sampan-" + p.Name
}

// NameFlag returns the flag that names the cluster in a command line, with a space before it, or "" if it has the default name.
func (p Profile) NameFlag() string {
	if p.Name == DefaultName {
		return ""
	}
	return " --name=" + p.Name
}

// Bridge returns the name of the cluster's link.
func (p Profile) Bridge() string { return p.link("spn-") }

// BalancerLink returns the name of the link on which addresses of load balancers stand.
func (p Profile) BalancerLink() string { return p.link("spl-") }

// link returns the name of a link, which has at most 15 bytes as Linux demands.
func (p Profile) link(prefix string) string {
	const longest = 15
	if b := prefix + p.Name; len(b) <= longest {
		return b
	}
	sum := sha256.Sum256([]byte(p.Name))
	return prefix + hex.EncodeToString(sum[:])[:longest-len(prefix)]
}

// Cgroup returns the name of the cluster's cgroup below the root of each
// hierarchy.
func (p Profile) Cgroup() string { return "sampan-" + p.Name }

// NetworkTable returns the name of the nftables table of the pod network.
func (p Profile) NetworkTable() string { return "sampan-" + p.Name + "-pods" }

// ServiceTable returns the name of the nftables table of the service proxy.
func (p Profile) ServiceTable() string { return "sampan-" + p.Name + "-services" }

// RelayTable returns the name of the nftables table of relayed services that keep their
// clients' addresses.
func (p Profile) RelayTable() string { return "sampan-" + p.Name + "-relay" }

// Log returns the file that a cluster in the background logs to.
func (p Profile) Log() string { return filepath.Join(p.DataDir, "sampan.log") }

// RuntimeLog returns the file that the container runtime logs to.
func (p Profile) RuntimeLog() string { return filepath.Join(p.DataDir, "runtime.log") }

// RuntimeSocket returns the socket of the container runtime.
func (p Profile) RuntimeSocket() string { return filepath.Join(p.RunDir, "runtime.sock") }

// RuntimeState returns the state directory of the container runtime.
func (p Profile) RuntimeState() string { return filepath.Join(p.RunDir, "runtime") }

// RuntimeRoot returns where the container runtime keeps images and containers.
func (p Profile) RuntimeRoot() string { return filepath.Join(p.DataDir, "runtime") }

// AgentRoot returns where the node agent keeps the files of pods and drivers: its own /var/lib/kubelet.
func (p Profile) AgentRoot() string { return filepath.Join(p.DataDir, "pods") }

// DriverSockets returns the sockets by which programs on this machine, such as drivers of volumes, register with the cluster's node. It
// is to be called when the node was cleaned, which removes the sockets of programs that have ended.
func (p Profile) DriverSockets() []string {
	dir := filepath.Join(p.AgentRoot(), "plugins_registry")
	entries, _ := os.ReadDir(dir) // not there: none
	var all []string
	for _, e := range entries {
		if e.Type() == os.ModeSocket {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	return all
}

// EncryptionKeys returns the file with the keys that records are encrypted with on disk.
func (p Profile) EncryptionKeys() string { return filepath.Join(p.DataDir, "pki", "encryption.yaml") }

// Kubeconfig returns the file with the administrator's credentials, which the
// cluster itself writes at each start.
func (p Profile) Kubeconfig() string { return filepath.Join(p.DataDir, "admin.kubeconfig") }
