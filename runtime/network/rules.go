package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/oomscore"
)

// showBridged applies the rules of the network layer to packets that cross the bridge from
// pod to pod, so that answers to a connection whose destination was changed there find the
// way back (N6). It is a setting of this bridge only.
func showBridged(bridge netlink.Link, ipv6 bool) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(bridge.Attrs().Index)
	req.AddData(msg)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	data.AddRtAttr(unix.IFLA_BR_NF_CALL_IPTABLES, nl.Uint8Attr(1))
	if ipv6 {
		data.AddRtAttr(unix.IFLA_BR_NF_CALL_IP6TABLES, nl.Uint8Attr(1))
	}
	req.AddData(info)
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("having packets between its ports pass by rules: %w", err)
	}
	return nil
}

// bridgedSetting is there if the kernel can have packets between ports of a bridge pass by rules.
const bridgedSetting = "/proc/sys/net/bridge/bridge-nf-call-iptables"

// loadBridged loads the kernel module br_netfilter if it is neither loaded nor built in. No request
// for a bridge makes the kernel load it, so the host's modprobe does, which finds modules and unpacks
// them.
func loadBridged(ctx context.Context) {
	if _, err := os.Stat(bridgedSetting); err == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	_ = oomscore.Run(exec.CommandContext(ctx, "modprobe", "--quiet", "br_netfilter")) // hidesBridged reports a failure
}

// loadPatience is how long the host may take to load a module.
const loadPatience = 5 * time.Second

// hidesBridged returns what an administrator can do if the rules of the network layer do
// not apply to packets from pod to pod, or "".
func hidesBridged() string {
	if _, err := os.Stat(bridgedSetting); errors.Is(err, fs.ErrNotExist) {
		return "the kernel module br_netfilter cannot be loaded (try `modprobe br_netfilter`): pods would not reach services by way of pods of the same node, so services are relayed unless --proxy-mode=kernel is given"
	}
	return ""
}
