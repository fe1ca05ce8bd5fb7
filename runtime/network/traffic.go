package network

import "fmt"

// podInterface is the name of a pod's network interface inside the pod.
const podInterface = "eth0"

// Traffic is what a pod has sent and received since it was made, in bytes, and how often that failed.
type Traffic struct {
	Interface                 string // its name inside the pod
	Received, Sent            uint64
	ReceiveErrors, SendErrors uint64
}

// Traffic returns the traffic of the pod with the given link. The counters are those of the host's end of the link: what that
// sends, the pod receives.
func (n *Network) Traffic(link string) (Traffic, error) {
	l, err := n.link.LinkByName(link)
	if err != nil {
		return Traffic{}, fmt.Errorf("link %s: %w", link, err)
	}
	s := l.Attrs().Statistics
	if s == nil {
		return Traffic{}, fmt.Errorf("link %s has no counters", link)
	}
	return Traffic{podInterface, s.TxBytes, s.RxBytes, s.TxErrors, s.RxErrors}, nil
}
