package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// showBridged has what goes over the bridge from pod to pod pass by the rules of the
// network layer, so that answers to a connection whose destination was changed there
// find the way back (N6). It is the bridge's own setting, whatever holds for others.
func showBridged(bridge netlink.Link) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(bridge.Attrs().Index)
	req.AddData(msg)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	data.AddRtAttr(unix.IFLA_BR_NF_CALL_IPTABLES, nl.Uint8Attr(1))
	req.AddData(info)
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("having packets between its ports pass by rules: %w", err)
	}
	return nil
}

// hidesBridged says what an administrator can do where packets from pod to pod do not pass
// by the rules of the network layer, or "".
func hidesBridged() string {
	if _, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables"); errors.Is(err, fs.ErrNotExist) {
		return "the kernel module br_netfilter is not loaded: pods do not reach services by way of pods of the same node; load it with `modprobe br_netfilter`, or start the cluster with --proxy-mode=userspace"
	}
	return ""
}
