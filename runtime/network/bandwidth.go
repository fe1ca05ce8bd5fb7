package network

import (
	"fmt"
	"math"

	"github.com/vishvananda/netlink"

	"github.com/sampan-io/sampan/internal/quantity"
)

// The annotations that limit the bandwidth of a pod, and the bounds of their values, as upstream has them.
const (
	ingressAnnotation = "kubernetes.io/ingress-bandwidth"
	egressAnnotation  = "kubernetes.io/egress-bandwidth"

	leastBandwidth = 1_000                 // 1k
	mostBandwidth  = 1_000_000_000_000_000 // 1P
)

// A Bandwidth limits the traffic of a pod, in bits a second; 0 means no limit.
type Bandwidth struct {
	Ingress, Egress uint64 // to the pod, and from it
}

// BandwidthOf reads the limits from the annotations of a pod.
func BandwidthOf(annotations map[string]string) (Bandwidth, error) {
	ingress, err := bandwidth(annotations, ingressAnnotation)
	if err != nil {
		return Bandwidth{}, err
	}
	egress, err := bandwidth(annotations, egressAnnotation)
	if err != nil {
		return Bandwidth{}, err
	}
	return Bandwidth{ingress, egress}, nil
}

func bandwidth(annotations map[string]string, name string) (uint64, error) {
	text, has := annotations[name]
	if !has {
		return 0, nil
	}
	q, err := quantity.Parse(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("annotation %s: %q: %w", name, text, err)
	case q.CmpInt64(leastBandwidth) < 0:
		return 0, fmt.Errorf("annotation %s: %q: resource is unreasonably small (< 1kbit)", name, text)
	case q.CmpInt64(mostBandwidth) > 0:
		return 0, fmt.Errorf("annotation %s: %q: resource is unreasonably large (> 1Pbit)", name, text)
	}
	return uint64(q.Value()), nil
}

const (
	// leastBurst is the smallest bucket in bytes: two of the largest packets, which a veth pair passes on unsplit.
	leastBurst = 2 << 16
	// burstShare is the share of a second whose traffic may pass at once. The bucket is filled once in a tick of the kernel at
	// the latest, which is a hundredth of a second.
	burstShare = 50
	// queueShare is the share of a second for which packets wait at most before they are dropped: 25 ms.
	queueShare = 40
)

// limit limits what a link sends, in bits a second, by a token bucket filter.
func limit(h *netlink.Handle, link netlink.Link, bits uint64) error {
	if bits == 0 {
		return nil
	}
	rate := bits / 8
	burst := min(max(rate/burstShare, leastBurst), math.MaxUint32/2)
	buffer := min(uint64(float64(burst)/float64(rate)*netlink.TIME_UNITS_PER_SEC*netlink.TickInUsec()), math.MaxUint32)
	err := h.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       rate, Buffer: uint32(buffer), Limit: uint32(min(rate/queueShare+burst, math.MaxUint32)),
	})
	if err != nil {
		return fmt.Errorf("limiting the bandwidth of %s to %d bits a second: %w", link.Attrs().Name, bits, err)
	}
	return nil
}

// shape limits the traffic of a pod: what it receives at the host's end of its pair, what it sends at its own, where its
// senders wait instead of losing packets.
func (n *Network) shape(a Attachment, inside *netlink.Handle, eth0 netlink.Link) error {
	if a.Bandwidth.Ingress > 0 {
		port, err := n.link.LinkByName(a.Link)
		if err != nil {
			return fmt.Errorf("%s: %w", a.Link, err)
		}
		if err := limit(n.link, port, a.Bandwidth.Ingress); err != nil {
			return err
		}
	}
	return limit(inside, eth0, a.Bandwidth.Egress)
}
