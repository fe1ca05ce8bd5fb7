package scheduler

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// A ledger knows which pods take what of which node. It has no lock of its own.
type ledger struct {
	nodes  []*plugin.Node // those that exist, by name
	byName map[string]*plugin.Node
	placed map[types.UID]placed
}

// placed is a pod that counts on a node.
type placed struct {
	pod  *plugin.Pod
	node string
}

func newLedger() *ledger {
	return &ledger{byName: map[string]*plugin.Node{}, placed: map[types.UID]placed{}}
}

// node returns the node of that name; one that does not exist (yet, or any more)
// can have pods all the same.
func (l *ledger) node(name string) *plugin.Node {
	n := l.byName[name]
	if n == nil {
		n = &plugin.Node{}
		l.byName[name] = n
	}
	return n
}

func (l *ledger) search(name string) (int, bool) {
	return slices.BinarySearchFunc(l.nodes, name, func(n *plugin.Node, name string) int {
		return strings.Compare(n.Name, name)
	})
}

// setNode notes the state of a node.
func (l *ledger) setNode(obj *corev1.Node) {
	n := l.node(obj.Name)
	i, known := l.search(obj.Name)
	n.Set(obj)
	if !known {
		l.nodes = slices.Insert(l.nodes, i, n)
	}
}

// dropNode notes that a node is gone.
func (l *ledger) dropNode(name string) {
	if i, ok := l.search(name); ok {
		l.nodes = slices.Delete(l.nodes, i, i+1)
	}
	if n := l.byName[name]; n != nil {
		if n.Node = nil; n.Pods == 0 {
			delete(l.byName, name)
		}
	}
}

// place counts a pod on a node, and no longer where or how it counted before.
func (l *ledger) place(pod *plugin.Pod, node string) {
	l.remove(pod.UID)
	l.node(node).Add(pod)
	l.placed[pod.UID] = placed{pod, node}
}

// remove counts a pod out and reports whether it counted.
func (l *ledger) remove(uid types.UID) bool {
	p, ok := l.placed[uid]
	if !ok {
		return false
	}
	delete(l.placed, uid)
	n := l.byName[p.node]
	n.Remove(p.pod)
	if n.Pods == 0 && n.Node == nil {
		delete(l.byName, p.node)
	}
	return true
}
