package plugin

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
)

// A Plugin is anything with a name; its work is defined by the interfaces below
// that it implements.
type Plugin interface {
	// Name is the plug-in's name in KubeSchedulerConfiguration
	// ("NodePorts"). It is the same for all values of the type.
	Name() string
}

// A Queued is a pod that needs a node.
type Queued struct {
	*Pod
	Since    time.Time // when it came into the queue for the first time
	Attempts int       // decisions about it so far
}

// A QueueSort says which pod is decided about first. There is exactly one in use.
type QueueSort interface {
	Plugin

	// Less reports whether a goes before b. It must be a strict weak order.
	// Pods that are equal to it go in the order in which they came.
	Less(a, b *Queued) bool
}

// A PreEnqueue keeps pods out of the queue until they may be scheduled.
type PreEnqueue interface {
	Plugin

	// PreEnqueue answers Success, or Unresolvable or Wait for a pod that has to
	// be left alone. It is asked again when the pod changes and when one
	// of the plug-in's hints says so.
	PreEnqueue(pod *Pod) Verdict
}

// A PreFilter looks at a pod and the cluster once, before the nodes are asked about.
type PreFilter interface {
	Plugin

	// PreFilter answers Success, Skip (the plug-in is then not asked about nodes), a refusal
	// (the pod fits nowhere) or Failed. With Success a Check that is not nil is asked
	// about nodes; if it is nil, the plug-in's own Filter is, if it has one.
	PreFilter(ctx context.Context, pod *Pod, s *Snapshot) (Check, Verdict)
}

// A Check is a PreFilter's result for one pod. It is asked about nodes, by one goroutine at a
// time, and not necessarily about all of them (plugin-P4).
type Check interface {
	// Filter says whether the node may run the pod: Success, Unschedulable,
	// Unresolvable or Failed.
	Filter(node *Node) Verdict
}

// A Narrower is a [Check] that knows which nodes come into question at all. All others are
// refused as unresolvable and are not asked about.
type Narrower interface {
	Check

	// Narrow returns the names of the nodes and true, or false if all come into question.
	// Names that no node has are ignored.
	Narrow() (nodes []string, narrow bool)
}

// A Follower is a [Check] that has counted pods of the Snapshot itself. It is called for pods that are removed and added
// while the Check is in use (plugin-P4), after the Snapshot and the Node have changed.
type Follower interface {
	Check
	PodAdded(pod *Pod, node *Node)
	PodRemoved(pod *Pod, node *Node)
}

// A Filter rules nodes out by looking at the node and the pod alone (plugin-P3). All Filters are asked about a
// node before the Checks are, each in the order of the [Set].
type Filter interface {
	Plugin

	// Filter says whether the node may run the pod: Success, Unschedulable,
	// Unresolvable or Failed.
	Filter(pod *Pod, node *Node) Verdict
}

// An Explainer is a Filter (or a Check, without the pod: see [CheckExplainer]) that can say in
// numbers a node's lacks. It is asked for explanations alone, about nodes that it refuses.
type Explainer interface {
	Explain(pod *Pod, node *Node) []Lack
}

// A CheckExplainer is a [Check] that can count a node's missing resources.
type CheckExplainer interface {
	Explain(node *Node) []Lack
}

// A PostFilter looks for a way to make room for a pod that fits nowhere.
type PostFilter interface {
	Plugin

	// PostFilter answers Success with a way, a refusal if there is none, whose
	// reason ends the pod's event ("preemption: 0/3 nodes are available: …"), or Failed.
	// It does nothing itself: the scheduler ends the victims, nominates the node and calls Write. With a refusal only Write
	// counts.
	PostFilter(ctx context.Context, f Failure) (Nomination, Verdict)
}

// A Nomination is a way to make room for a pod.
type Nomination struct {
	Node    string // where the pod will have room; empty: an earlier nomination no longer counts
	Victims []*Pod // the pods to evict, all on that node; they are in the Snapshot

	// Write, if it is not nil, changes an object so that the pod may fit a later time. It is called once, on a goroutine that
	// may block. The event about the object wakes the pod, by the hints of the plug-in; an error lets it try again after a pause.
	Write func(ctx context.Context, c client.Interface) error
}

// A Failure is a decision that found no node, and a place to ask "what if".
type Failure interface {
	Pod() *Pod
	Snapshot() *Snapshot

	// Verdict is why the node was refused, and Refuser the name of the plug-in that did it.
	Verdict(n *Node) (v Verdict, refuser string)

	// Hopeful returns the nodes whose refusal the end of other pods may change (Unschedulable), in the order of
	// [Snapshot.Nodes].
	Hopeful() []*Node

	// Keep remembers the plug-in's result about a node as it is now. Kept returns it for pods of the same Signature
	// for as long as it is sure to be true as far as nodes and pods go; otherwise nil. It saves work, and makes no difference.
	Keep(n *Node, what any)
	Kept(n *Node) any

	// Fits asks all filters whether the node would take the pod now, with
	// the pods of at least its priority that are nominated to the node counted in.
	Fits(n *Node) Verdict

	// Remove takes a placed pod out of the Snapshot and Restore puts it back. What
	// is not restored at the end of PostFilter, the scheduler restores.
	Remove(victim *Pod)
	Restore(victim *Pod)
}

// A PreScore looks at a pod and the nodes that fit once, before they are ranked.
type PreScore interface {
	Plugin

	// PreScore answers Success, Skip (the plug-in then scores nothing for this pod) or
	// Failed. With Success a Scorer that is not nil ranks the nodes; if it is
	// nil, the plug-in's own Score does, if it has one.
	PreScore(ctx context.Context, pod *Pod, s *Snapshot, nodes []*Node) (Scorer, Verdict)
}

// A Scorer is a PreScore's result for one pod. It is asked about each of the nodes that PreScore
// was given.
type Scorer interface {
	Score(node *Node) int64
}

// A Score ranks nodes by looking at the node and the pod alone (plugin-P3).
type Score interface {
	Plugin

	// Score returns a score, from 0 to [MaxScore] unless the plug-in is a [Normalizer].
	Score(pod *Pod, node *Node) int64
}

// MaxScore is the best score that a node gets.
const MaxScore = 100

// A Normalizer is a [Score] or a [Scorer] whose scores mean something only beside each other.
type Normalizer interface {
	// Normalize brings scores, which belong to the nodes of the same index, to 0 to
	// [MaxScore] (plugin-P6). See [Normalize] for the usual way.
	Normalize(nodes []*Node, scores []int64)
}

// A Placement is a pod with the node that was chosen for it.
type Placement struct {
	Pod    *Pod
	Node   string
	Check  Check            // the result of the plug-in's PreFilter for this pod; nil if nothing
	Client client.Interface // of the scheduler
}

// A Reserve counts resources outside the Snapshot. It is called for each placement before the next decision.
type Reserve interface {
	Plugin
	Reserve(ctx context.Context, p Placement) Verdict
	Unreserve(ctx context.Context, p Placement)
}

// A Permit can hold or refuse a placement.
type Permit interface {
	Plugin

	// Permit returns Success, a refusal, Failed, or Wait with a timeout, after which the placement is refused unless a plug-in
	// has answered (the largest timeout is 15 minutes). Any Permit of the same plug-in can allow or refuse a placement that
	// waits.
	Permit(ctx context.Context, p Placement, held Held) (Verdict, time.Duration)
}

// Held are the placements that a plug-in's Permit holds. It is safe for concurrent use, and may be used
// after Permit has returned.
type Held interface {
	// Each calls f with the placements that are held now, except for the one that Permit is called about, until f returns
	// false.
	Each(f func(p Placement) bool)

	// Allow lets a placement go on, as far as this plug-in is concerned, and reports
	// whether it was held.
	Allow(pod types.UID) bool

	// Reject refuses a placement, and reports whether it was held.
	Reject(pod types.UID, reason string) bool
}

// A PreBind does the work before a pod is bound, and blocks until it
// is done.
type PreBind interface {
	Plugin
	PreBind(ctx context.Context, p Placement) Verdict // Success, a refusal, Skip or Failed
}

// A PreFlight is a [PreBind] that can say, at once, whether it has anything to do for a placement. One that has not is
// not asked, and costs the pod no goroutine that may block.
type PreFlight interface {
	PreBind
	Busy(p Placement) bool
}

// A Bind writes to the API server that a pod runs on its node. The first one that does not return Skip is the last one that
// is called. If no plug-in is enabled at this point, the scheduler posts a Binding itself.
type Bind interface {
	Plugin
	Bind(ctx context.Context, p Placement) Verdict
}

// A PostBind is called after a pod was bound.
type PostBind interface {
	Plugin
	PostBind(ctx context.Context, p Placement)
}

// A Signer is a plug-in that looks at more of a pod than its [Signature] covers otherwise.
type Signer interface {
	Plugin

	// Sign returns its part of the pod, as text; "" if there is nothing of it.
	Sign(pod *Pod) string
}

// A Configurable is a plug-in that takes arguments: pluginConfig in KubeSchedulerConfiguration.
type Configurable interface {
	Plugin

	// Configure returns the plug-in with the given arguments, the JSON object under
	// "args", and leaves the receiver as it is. Use [DecodeArgs], whose errors name fields
	// below "args".
	Configure(args json.RawMessage) (Plugin, error)
}

// A Needer is a plug-in that looks at other objects than pods, nodes and namespaces.
type Needer interface {
	Plugin

	// Needs lists the resources that have to be in the Snapshot: see [Find] and
	// [All]. It must be the same at every call.
	Needs() []schema.GroupVersionResource
}

// An OptionalNeeder is a [Needer] that works without some of its resources, if the server does not serve them or the
// scheduler must not read them. They are then as if there were no objects.
type OptionalNeeder interface {
	Needer

	// Optional lists resources of Needs. It must be the same at every call.
	Optional() []schema.GroupVersionResource
}

// Normalize brings scores to 0 to MaxScore by dividing them by the best of them, which must not be
// negative. With reverse the best is the worst.
func Normalize(scores []int64, reverse bool) {
	var best int64
	for _, s := range scores {
		best = max(best, s)
	}
	for i, s := range scores {
		if best > 0 {
			s = s * MaxScore / best
		}
		if reverse {
			s = MaxScore - s
		}
		scores[i] = s
	}
}
