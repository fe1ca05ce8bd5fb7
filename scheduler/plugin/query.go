package plugin

import (
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// A PodQuery selects pods by namespace and labels. It does not change. Queries that say the same
// have the same Key, and share their counts.
type PodQuery struct {
	key         string
	namespaces  []string        // sorted
	spaces      labels.Selector // of namespaces by their labels; nil: none
	selector    labels.Selector
	living      bool
	and         []*PodQuery // all of these, instead of the above
	pair        pair        // a label that every selected pod has, if one is known
	wantsSpaces bool        // depends on the labels of namespaces
}

// pair is a label; the zero pair is none.
type pair struct{ key, value string }

// PodSelection says which pods a [PodQuery] selects.
type PodSelection struct {
	Namespaces        []string
	NamespaceSelector *metav1.LabelSelector // namespaces beside Namespaces; nil: none, empty: all
	Labels            *metav1.LabelSelector // nil selects nothing, empty everything, as the API says
	Living            bool                  // leave out pods whose deletion was asked for

	// Equal names labels that selected pods have with the same values as the pod Like; a label that Like does not have is
	// ignored. Unequal names labels that they have with other values (matchLabelKeys, mismatchLabelKeys).
	Like           *corev1.Pod
	Equal, Unequal []string
}

// NewPodQuery returns the query for a selection. A selector that the API would not take selects nothing.
func NewPodQuery(s PodSelection) *PodQuery {
	q := &PodQuery{selector: selectorOf(s.Labels), living: s.Living}
	if s.Like != nil && s.Labels != nil {
		q.selector = q.selector.Add(append(requirements(s.Like, s.Equal, selection.In), requirements(s.Like, s.Unequal, selection.NotIn)...)...)
	}
	q.namespaces = slices.Clone(s.Namespaces)
	slices.Sort(q.namespaces)
	if s.NamespaceSelector != nil {
		q.spaces = selectorOf(s.NamespaceSelector)
		q.wantsSpaces = true
	}
	var b strings.Builder
	b.WriteString(strings.Join(q.namespaces, ","))
	b.WriteByte('/')
	if q.spaces != nil {
		b.WriteString("~" + q.spaces.String())
	}
	b.WriteByte('/')
	b.WriteString(q.selector.String())
	if r, some := q.selector.Requirements(); !some {
		b.WriteString("!") // selects nothing
	} else {
		for i := range r {
			op, values := r[i].Operator(), r[i].ValuesUnsorted()
			if (op == selection.In || op == selection.Equals || op == selection.DoubleEquals) && len(values) == 1 {
				q.pair = pair{r[i].Key(), values[0]}
				break
			}
		}
	}
	if q.living {
		b.WriteString("/living")
	}
	q.key = fixedKey(b.String())
	return q
}

func selectorOf(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// requirements returns one requirement per key that is a label of the pod, with its value.
func requirements(like *corev1.Pod, keys []string, op selection.Operator) []labels.Requirement {
	var out []labels.Requirement
	for _, k := range keys {
		if v, ok := like.Labels[k]; ok {
			if r, err := labels.NewRequirement(k, op, []string{v}); err == nil {
				out = append(out, *r)
			}
		}
	}
	return out
}

// longKey is the length in bytes from which keys are replaced by their hashes.
const longKey = 256

// fixedKey returns a key of bounded length for one of any length: many things may have to have the same long key, each
// beside a part of its own.
func fixedKey(key string) string {
	if len(key) < longKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256\x00" + string(sum[:])
}

// AllOf selects the pods that all of the queries select, of which there must be one at least.
func AllOf(queries ...*PodQuery) *PodQuery {
	if len(queries) == 1 {
		return queries[0]
	}
	q := &PodQuery{}
	keys := make([]string, 0, len(queries))
	seen := make(map[string]bool, len(queries))
	for _, one := range queries {
		if seen[one.key] {
			continue
		}
		seen[one.key] = true
		keys, q.and = append(keys, one.key), append(q.and, one)
		if q.pair == (pair{}) {
			q.pair = one.pair
		}
		q.wantsSpaces = q.wantsSpaces || one.wantsSpaces
	}
	q.key = fixedKey(strings.Join(keys, "&"))
	return q
}

// Key is the same for queries that say the same.
func (q *PodQuery) Key() string { return q.key }

// Selects reports whether the query selects a pod.
func (s *Snapshot) Selects(q *PodQuery, pod *Pod) bool {
	if q.and != nil {
		for _, one := range q.and {
			if !s.Selects(one, pod) {
				return false
			}
		}
		return true
	}
	if q.living && pod.DeletionTimestamp != nil {
		return false
	}
	if _, in := slices.BinarySearch(q.namespaces, pod.Namespace); !in &&
		(q.spaces == nil || !q.spaces.Matches(labels.Set(s.namespaces[pod.Namespace]))) {
		return false
	}
	return q.selector.Matches(labels.Set(pod.Labels))
}

// A NodeQuery selects nodes.
type NodeQuery struct {
	// Key is the same for queries that say the same; empty selects every node. It may have any length if it is made by
	// [NodeKey], and should be short otherwise.
	Key string

	// Match depends on the name, labels and spec of the node alone.
	Match func(*corev1.Node) bool
}

// NodeKey returns the Key of a [NodeQuery] for a text of any length, which is different for different texts.
func NodeKey(text string) string { return fixedKey(text) }

// A Term is a term of pod affinity or anti-affinity.
type Term struct {
	Pods   *PodQuery
	Key    string // of the topology
	Weight int64  // of a preference
	id     string
}

// A TermKind says which list a [Term] is in.
type TermKind int

// The kinds of terms.
const (
	RequiredAffinity TermKind = iota
	RequiredAntiAffinity
	PreferredAffinity
	PreferredAntiAffinity
	termKinds
)

// Affinity is a pod's terms about other pods.
type Affinity [termKinds][]Term

// newAffinity returns nil for a pod that says nothing.
func newAffinity(p *corev1.Pod) *Affinity {
	a := p.Spec.Affinity
	if a == nil || a.PodAffinity == nil && a.PodAntiAffinity == nil {
		return nil
	}
	var out Affinity
	if a := a.PodAffinity; a != nil {
		out[RequiredAffinity] = requiredTerms(p, a.RequiredDuringSchedulingIgnoredDuringExecution)
		out[PreferredAffinity] = preferredTerms(p, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := a.PodAntiAffinity; a != nil {
		out[RequiredAntiAffinity] = requiredTerms(p, a.RequiredDuringSchedulingIgnoredDuringExecution)
		out[PreferredAntiAffinity] = preferredTerms(p, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return &out
}

func requiredTerms(p *corev1.Pod, terms []corev1.PodAffinityTerm) []Term {
	var out []Term
	for i := range terms {
		out = append(out, newTerm(p, &terms[i], 0))
	}
	return out
}

func preferredTerms(p *corev1.Pod, terms []corev1.WeightedPodAffinityTerm) []Term {
	var out []Term
	for i := range terms {
		out = append(out, newTerm(p, &terms[i].PodAffinityTerm, int64(terms[i].Weight)))
	}
	return out
}

func newTerm(p *corev1.Pod, t *corev1.PodAffinityTerm, weight int64) Term {
	namespaces := t.Namespaces
	if len(namespaces) == 0 && t.NamespaceSelector == nil {
		namespaces = []string{p.Namespace}
	}
	out := Term{
		Pods: NewPodQuery(PodSelection{
			Namespaces: namespaces, NamespaceSelector: t.NamespaceSelector, Labels: t.LabelSelector,
			Like: p, Equal: t.MatchLabelKeys, Unequal: t.MismatchLabelKeys,
		}),
		Key: t.TopologyKey, Weight: weight,
	}
	out.id = termID(out)
	return out
}

func termID(t Term) string {
	return t.Pods.key + "\x00" + t.Key + "\x00" + strconv.FormatInt(t.Weight, 10)
}

// A Spread is a topology spread constraint of a pod.
type Spread struct {
	*corev1.TopologySpreadConstraint
	Pods *PodQuery // the pods that count: living ones of the pod's namespace
}

// NewSpreads returns the constraints, with the pods that they mean if pod has them.
func NewSpreads(pod *corev1.Pod, constraints []corev1.TopologySpreadConstraint) []Spread {
	if len(constraints) == 0 {
		return nil
	}
	out := make([]Spread, len(constraints))
	for i := range constraints {
		c := &constraints[i]
		out[i] = Spread{c, NewPodQuery(PodSelection{
			Namespaces: []string{pod.Namespace}, Labels: c.LabelSelector, Living: true, Like: pod, Equal: c.MatchLabelKeys,
		})}
	}
	return out
}
