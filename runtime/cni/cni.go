package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	cnitypes "github.com/containernetworking/cni/pkg/types"
	types "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"
)

// The directories of containerd and most network add-ons.
const (
	DefaultConfDir = "/etc/cni/net.d"
	DefaultBinDir  = "/opt/cni/bin"
)

// defaultLimit is how long the plug-ins of one configuration may take together (C2).
const defaultLimit = 2 * time.Minute

// podInterface is the name of the interface in pods.
const podInterface = "eth0"

// Options configures a [Network]. All but Limit and Log are required.
type Options struct {
	ConfDir string
	BinDirs []string      // in which plug-ins are searched, in this order
	Cache   string        // directory for what pods were attached with; it must survive a restart of the machine
	Limit   time.Duration // for the plug-ins of one configuration together; 0 means two minutes
	Log     *slog.Logger
}

// A Network attaches pods. It is safe for concurrent use.
type Network struct {
	opts Options
	cni  *libcni.CNIConfig
}

// New returns a network. It reads and changes nothing.
func New(opts Options) *Network {
	opts.Log, opts.Limit = cmp.Or(opts.Log, slog.Default()), cmp.Or(opts.Limit, defaultLimit)
	return &Network{opts, libcni.NewCNIConfigWithCacheDir(opts.BinDirs, opts.Cache, &programs{})}
}

// A Pod says what plug-ins learn about a pod.
type Pod struct {
	ID, Namespace, Name, UID string
	NetNS                    string // path of its network namespace
	Annotations              map[string]string
	Ports                    []Port
	Bandwidth                Bandwidth
}

// A Bandwidth limits the traffic of a pod, in the form of the capability bandwidth: bits a second, and bits that may pass at
// once. A rate of 0 is no limit.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

// A Port is a port of the host that is to lead to the pod, in the form of the capability portMappings.
type Port struct {
	HostPort      int32  `json:"hostPort"`
	ContainerPort int32  `json:"containerPort"`
	Protocol      string `json:"protocol"` // in lower case
	HostIP        string `json:"hostIP"`
}

// errNone is that there is no configuration, in containerd's words, which users search for.
var errNone = errors.New("cni plugin not initialized")

// load reads the configuration.
func (n *Network) load() (*libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(n.opts.ConfDir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNone, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: no network config found in %s", errNone, n.opts.ConfDir)
	}
	first := files[0] // they are sorted
	for _, f := range files[1:] {
		if f < first {
			first = f
		}
	}
	var list *libcni.NetworkConfigList
	if strings.HasSuffix(first, ".conflist") {
		list, err = libcni.NetworkConfFromFile(first)
	} else {
		var one *libcni.PluginConfig
		if one, err = libcni.ConfFromFile(first); err == nil {
			list, err = libcni.ConfListFromConf(one)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errNone, first, err)
	}
	if len(list.Plugins) == 0 {
		return nil, fmt.Errorf("%w: %s: has no plugins", errNone, first)
	}
	return list, nil
}

// Status returns nil if pods can be attached. Plug-ins of version 1.1 and later are asked.
func (n *Network) Status(ctx context.Context) error {
	list, err := n.load()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, n.opts.Limit)
	defer cancel()
	return n.cni.GetStatusNetworkList(ctx, list)
}

func (p Pod) config() *libcni.RuntimeConf {
	c := &libcni.RuntimeConf{
		ContainerID: p.ID, NetNS: p.NetNS, IfName: podInterface,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", p.Namespace},
			{"K8S_POD_NAME", p.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.ID},
			{"K8S_POD_UID", p.UID},
		},
		CapabilityArgs: map[string]any{"io.kubernetes.cri.pod-annotations": p.Annotations},
	}
	if len(p.Ports) > 0 {
		c.CapabilityArgs["portMappings"] = p.Ports
	}
	if b := p.Bandwidth; b.IngressRate > 0 || b.EgressRate > 0 {
		if b.IngressRate > 0 {
			b.IngressBurst = maxBurst
		}
		if b.EgressRate > 0 {
			b.EgressBurst = maxBurst
		}
		c.CapabilityArgs["bandwidth"] = b
	}
	return c
}

// maxBurst is what other container runtimes pass as well: a burst is required, and pods do not say one.
const maxBurst = math.MaxUint32

// Attach attaches a pod and returns its addresses, the primary one first. After an error the caller detaches it (C1).
func (n *Network) Attach(ctx context.Context, p Pod) ([]netip.Addr, error) {
	list, err := n.load()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, n.opts.Limit)
	defer cancel()
	r, err := n.cni.AddNetworkList(ctx, list, p.config())
	if err != nil {
		return nil, fmt.Errorf("network %q: %w", list.Name, err)
	}
	result, err := types.GetResult(r)
	if err != nil {
		return nil, fmt.Errorf("network %q: %w", list.Name, err)
	}
	addresses := addressesOf(result)
	if len(addresses) == 0 {
		return nil, fmt.Errorf("network %q: the plug-ins returned no address of %s", list.Name, podInterface)
	}
	return addresses, nil
}

// addressesOf returns the addresses of the pod's interface. Addresses that name no interface are its.
func addressesOf(r *types.Result) []netip.Addr {
	var all []netip.Addr
	for _, ip := range r.IPs {
		if ip == nil {
			continue
		}
		if i := ip.Interface; i != nil {
			if *i < 0 || *i >= len(r.Interfaces) || r.Interfaces[*i] == nil {
				continue
			}
			if link := r.Interfaces[*i]; link.Sandbox == "" || link.Name != podInterface {
				continue
			}
		}
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// Check reports whether the network of a pod is still as it was made.
func (n *Network) Check(ctx context.Context, p Pod) error {
	list, conf, err := n.attached(p)
	if err != nil || list == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, n.opts.Limit)
	defer cancel()
	return n.cni.CheckNetworkList(ctx, list, conf)
}

// attached returns what a pod was attached with: the stored configuration or, if the attempt was cut off, the current one. Neither
// a list nor an error means that there is nothing to detach it with.
func (n *Network) attached(p Pod) (*libcni.NetworkConfigList, *libcni.RuntimeConf, error) {
	conf := p.config()
	all, err := n.cni.GetCachedAttachments(p.ID)
	if err != nil {
		return nil, nil, err
	}
	if len(all) > 0 {
		a := all[0]
		list, err := listOf(a)
		if err != nil {
			return nil, nil, err
		}
		conf.Args, conf.CapabilityArgs, conf.IfName = a.CniArgs, a.CapabilityArgs, a.IfName
		return list, conf, nil
	}
	list, err := n.load()
	if errors.Is(err, errNone) {
		return nil, conf, nil
	}
	return list, conf, err
}

func listOf(a *libcni.NetworkAttachment) (*libcni.NetworkConfigList, error) {
	list, err := libcni.NetworkConfFromBytes(a.Config)
	if err != nil {
		return nil, fmt.Errorf("stored configuration of network %q: %w", a.Network, err)
	}
	return list, nil
}

// Detach detaches a pod. To detach one that is not attached is no error. The network namespace may be gone.
func (n *Network) Detach(ctx context.Context, p Pod) error {
	list, conf, err := n.attached(p)
	if err != nil || list == nil {
		return err
	}
	return n.delete(ctx, list, conf)
}

func (n *Network) delete(ctx context.Context, list *libcni.NetworkConfigList, conf *libcni.RuntimeConf) error {
	if !isNamespace(conf.NetNS) {
		conf.NetNS = "" // plug-ins release what they keep outside of it
	}
	ctx, cancel := context.WithTimeout(ctx, n.opts.Limit)
	defer cancel()
	return n.cni.DelNetworkList(ctx, list, conf)
}

// isNamespace reports whether a namespace is mounted at a path.
func isNamespace(path string) bool {
	var fs unix.Statfs_t
	return path != "" && unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC
}

// Settle detaches the pods that were attached and are not there any more, after a restart of the machine for example (C1). What
// cannot be detached is tried again at the next start.
func (n *Network) Settle(ctx context.Context, exists func(id string) bool) {
	if _, err := os.Stat(n.opts.Cache); err != nil {
		return // no pod was ever attached
	}
	all, err := n.cni.GetCachedAttachments("")
	if err != nil {
		n.opts.Log.Warn("the attachments of earlier pods can't be read", "err", err)
	}
	for _, a := range all {
		if exists(a.ContainerID) {
			continue
		}
		list, err := listOf(a)
		if err == nil {
			err = n.delete(ctx, list, &libcni.RuntimeConf{
				ContainerID: a.ContainerID, NetNS: a.NetNS, IfName: a.IfName, Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs,
			})
		}
		if err != nil {
			n.opts.Log.Warn("an earlier pod can't be detached from its network", "pod", a.ContainerID, "err", err)
		}
	}
	n.collect(ctx, all, exists)
}

// collect has the plug-ins of the current configuration release everything but what belongs to the pods that are there. Plug-ins of
// version 1.1 and later can.
func (n *Network) collect(ctx context.Context, all []*libcni.NetworkAttachment, exists func(id string) bool) {
	list, err := n.load()
	if err != nil {
		return
	}
	keep := &libcni.GCArgs{}
	for _, a := range all {
		if a.Network == list.Name && exists(a.ContainerID) {
			keep.ValidAttachments = append(keep.ValidAttachments, cnitypes.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, n.opts.Limit)
	defer cancel()
	if err := n.cni.GCNetworkList(ctx, list, keep); err != nil {
		n.opts.Log.Warn("the network plug-ins can't release what earlier pods left", "network", list.Name, "err", err)
	}
}
