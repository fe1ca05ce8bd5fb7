package apply

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/internal/sorting"
)

// The labels and annotations of Kubernetes enhancement 3659.
const (
	setID         = "applyset.kubernetes.io/id"      // label of a parent
	setPartOf     = "applyset.kubernetes.io/part-of" // label of a member
	setTooling    = "applyset.kubernetes.io/tooling"
	setKinds      = "applyset.kubernetes.io/contains-group-kinds"
	setNamespaces = "applyset.kubernetes.io/additional-namespaces"
	setParentType = "applyset.kubernetes.io/is-parent-type" // label of the definition of a kind
)

// Tool is the name of this tool in the annotation of an ApplySet's parent.
const Tool = "sampan"

// A Parent names the object that remembers what belongs to a set.
type Parent struct {
	Mapping         resource.Mapping
	Namespace, Name string
}

func (p Parent) String() string { return p.Mapping.Called(p.Name) }

// ID returns the label value of the set: a hash of the parent's name, namespace, kind
// and group.
func (p Parent) ID() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{p.Name, p.Namespace, p.Mapping.Kind, p.Mapping.Group}, ".")))
	return "applyset-" + base64.RawURLEncoding.EncodeToString(sum[:]) + "-v1"
}

// ParseParent reads [TYPE[.GROUP]/]NAME; without a type it is a Secret. The namespace is
// the one that the user works in. (Kubectl wants it to be chosen with -n, which keeps all
// members out of other namespaces.)
func ParseParent(ctx context.Context, m *resource.Mapper, text, namespace string) (Parent, error) {
	kind, name, typed := strings.Cut(text, "/")
	if !typed {
		kind, name = "secrets", text
	}
	if name == "" || kind == "" || strings.Contains(name, "/") {
		return Parent{}, fmt.Errorf("invalid parent reference %q: want NAME or TYPE[.GROUP]/NAME", text)
	}
	mapping, err := m.ByName(ctx, kind)
	if err != nil {
		return Parent{}, fmt.Errorf("invalid parent reference %q: %w", text, err)
	}
	p := Parent{Mapping: mapping, Name: name}
	if mapping.Namespaced {
		p.Namespace = namespace
	}
	return p, nil
}

// plain reports whether the parent is of a kind that every server has and that may be
// made for the purpose.
func (p Parent) plain() bool {
	return p.Mapping.Group == "" && (p.Mapping.Kind == "Secret" || p.Mapping.Kind == "ConfigMap")
}

// An ApplySet is a set that a parent remembers, for one apply.
type ApplySet struct { //nolint:revive // the term of KEP-3659; a Set is what is applied at once
	parent  Parent
	tooling string
	opts    Options

	exists bool // the parent does
	before contents
	after  contents
}

// contents are where the members of a set are.
type contents struct {
	kinds      map[schema.GroupKind]bool
	namespaces map[string]bool // without the parent's own
}

func (c contents) with(o contents) contents {
	sum := contents{maps.Clone(c.kinds), maps.Clone(c.namespaces)}
	maps.Copy(sum.kinds, o.kinds)
	maps.Copy(sum.namespaces, o.namespaces)
	return sum
}

// OpenSet reads the parent, if there is one, and refuses it if it is not a parent, or
// that of another tool (P4). The version is that of this program.
func OpenSet(ctx context.Context, o Options, p Parent, version string) (*ApplySet, error) {
	s := &ApplySet{
		parent: p, tooling: Tool + "/" + version, opts: o,
		before: contents{map[schema.GroupKind]bool{}, map[string]bool{}}, after: contents{map[schema.GroupKind]bool{}, map[string]bool{}},
	}
	if o.Warn == nil {
		s.opts.Warn = func(string) {}
	}
	if !p.plain() {
		if err := s.permitted(ctx); err != nil {
			return nil, err
		}
	}
	live, err := answer(o.Client.Get(ctx, p.Mapping.GroupVersionResource, p.Namespace, p.Name, ""))
	switch {
	case apierrors.IsNotFound(err) && p.plain():
		return s, nil
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the ApplySet parent %s does not exist: only Secrets and ConfigMaps are created automatically", p)
	case err != nil:
		return nil, err
	}
	s.exists = true
	return s, s.read(live)
}

// permitted reports whether the definition of a custom resource allows parents.
func (s *ApplySet) permitted(ctx context.Context) error {
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	crd, err := answer(s.opts.Client.Get(ctx, crds, "", s.parent.Mapping.GroupResource().String(), ""))
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil {
		if _, marked := crd.GetLabels()[setParentType]; marked {
			return nil
		}
	}
	return fmt.Errorf("resource %q is not permitted as an ApplySet parent: want a Secret, a ConfigMap, or a kind whose definition has the label %s",
		s.parent.Mapping.GroupResource(), setParentType)
}

func (s *ApplySet) read(live *unstructured.Unstructured) error {
	annotations := live.GetAnnotations()
	tooling, found := annotations[setTooling]
	if !found {
		return fmt.Errorf("ApplySet parent object %q already exists and is missing required annotation %q", s.parent, setTooling)
	}
	tool := tooling
	if i := strings.LastIndex(tooling, "/"); i >= 0 {
		tool = tooling[:i]
	}
	if tool != Tool {
		return fmt.Errorf("ApplySet parent object %q already exists and is managed by tooling %q instead of %q", s.parent, tool, Tool)
	}
	switch id, found := live.GetLabels()[setID]; {
	case !found:
		return fmt.Errorf("ApplySet parent object %q exists and does not have required label %s", s.parent, setID)
	case id != s.parent.ID():
		return fmt.Errorf("ApplySet parent object %q exists and has incorrect value for label %q (got: %s, want: %s)", s.parent, setID, id, s.parent.ID())
	}
	kinds, found := annotations[setKinds]
	if !found {
		return fmt.Errorf("ApplySet parent object %q is missing the annotation %q, which lists the kinds of its members", s.parent, setKinds)
	}
	for text := range strings.SplitSeq(kinds, ",") {
		if text != "" {
			s.before.kinds[schema.ParseGroupKind(text)] = true
		}
	}
	for text := range strings.SplitSeq(annotations[setNamespaces], ",") {
		if text != "" {
			s.before.namespaces[text] = true
		}
	}
	return nil
}

// Begin labels the objects as members and writes their kinds and namespaces, beside those
// of the time before, into the parent (P1). A parent of an object of the set itself is
// refused.
func (s *ApplySet) Begin(ctx context.Context, infos []resource.Info) error {
	for _, info := range infos {
		if kindOf(info) == s.parent.Mapping.GVK().GroupKind() && info.Name == s.parent.Name && info.Namespace == s.parent.Namespace {
			return info.Fault(fmt.Errorf("%s is the parent of the ApplySet and cannot be a member of it", s.parent))
		}
		labels := info.Object.GetLabels()
		if _, taken := labels[setPartOf]; taken {
			return info.Fault(fmt.Errorf("ApplySet label %q already set in input data", setPartOf), "metadata.labels["+setPartOf+"]")
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[setPartOf] = s.parent.ID()
		info.Object.SetLabels(labels)
		s.after.kinds[kindOf(info)] = true
		if info.Namespace != "" && info.Namespace != s.parent.Namespace {
			s.after.namespaces[info.Namespace] = true
		}
	}
	return s.write(ctx, s.before.with(s.after))
}

// write has the parent remember contents.
func (s *ApplySet) write(ctx context.Context, c contents) error {
	if s.opts.DryRun == OnClient {
		return nil
	}
	kinds := make([]string, 0, len(c.kinds))
	for k := range c.kinds {
		kinds = append(kinds, k.String())
	}
	slices.Sort(kinds)
	meta := map[string]any{
		"labels": map[string]any{setID: s.parent.ID()},
		"annotations": map[string]any{
			setTooling: s.tooling, setKinds: strings.Join(kinds, ","), setNamespaces: strings.Join(slices.Sorted(maps.Keys(c.namespaces)), ","),
		},
	}
	gvr := s.parent.Mapping.GroupVersionResource
	if !s.exists {
		obj := &unstructured.Unstructured{Object: map[string]any{"metadata": meta}}
		obj.SetGroupVersionKind(s.parent.Mapping.GVK())
		obj.SetName(s.parent.Name)
		obj.SetNamespace(s.parent.Namespace)
		_, err := s.opts.Client.Create(ctx, gvr, s.parent.Namespace, "", obj, metav1.CreateOptions{DryRun: s.opts.DryRun.options(), FieldManager: s.manager()}, "")
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("the namespace of the ApplySet parent must exist before the set is applied: %w", err)
		case err != nil:
			return fmt.Errorf("writing the ApplySet parent %s: %w", s.parent, err)
		}
		s.exists = s.opts.DryRun == ForReal
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	_, err = s.opts.Client.Patch(ctx, gvr, s.parent.Namespace, s.parent.Name, types.MergePatchType, patch,
		metav1.PatchOptions{DryRun: s.opts.DryRun.options(), FieldManager: s.manager()}, "")
	if err != nil {
		return fmt.Errorf("writing the ApplySet parent %s: %w", s.parent, err)
	}
	return nil
}

// manager is the name under which the parent is written.
func (s *ApplySet) manager() string { return Tool + "-applyset" }

// Prune deletes the members that were not applied, and yields each; then it removes
// their kinds and namespaces from the parent. It is called only if every object
// was applied (P2).
func (s *ApplySet) Prune(ctx context.Context, applied []resource.Written) iter.Seq2[Applied, error] {
	return func(yield func(Applied, error) bool) {
		left, err := s.left(ctx, applied)
		failed := err != nil
		if err != nil && !yield(Applied{}, err) {
			return
		}
		for _, info := range slices.Backward(left) {
			uid := info.Object.GetUID()
			policy := metav1.DeletePropagationBackground
			if s.opts.DryRun != OnClient {
				err = s.opts.Client.Delete(ctx, info.Mapping.GroupVersionResource, info.Namespace, info.Name, metav1.DeleteOptions{
					DryRun: s.opts.DryRun.options(), PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid}, // P3
				})
			}
			if apierrors.IsNotFound(err) {
				err = nil // another client deleted it already
			}
			if err != nil {
				failed = true
				err = fmt.Errorf("pruning %s: %w", info, err)
			}
			if !yield(Applied{info, Result{Pruned, info.Object}}, err) {
				return
			}
		}
		if failed {
			return // the rest must be found the next time
		}
		if err := s.write(ctx, s.after); err != nil {
			yield(Applied{}, fmt.Errorf("apply and prune succeeded, but: %w", err))
		}
	}
}

// left returns the members that were not applied, in the order of applying.
func (s *ApplySet) left(ctx context.Context, applied []resource.Written) ([]resource.Info, error) {
	wanted := map[types.UID]bool{}
	for _, w := range applied {
		wanted[w.UID] = true
	}
	where := s.before.with(s.after)
	if s.parent.Namespace != "" {
		where.namespaces[s.parent.Namespace] = true
	}
	var (
		left []resource.Info
		errs []error
	)
	for kind := range where.kinds {
		mapping, err := s.opts.Mapper.ByGroupKind(ctx, kind)
		if _, ok := errors.AsType[*resource.NoTypeError](err); ok {
			s.opts.Warn(fmt.Sprintf("the ApplySet %s had objects of kind %s, which the server no longer serves: they are deleted", s.parent, kind))
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		namespaces := []string{""}
		if mapping.Namespaced {
			namespaces = slices.Sorted(maps.Keys(where.namespaces))
		}
		for _, ns := range namespaces {
			objs, _, err := s.opts.Client.List(ctx, mapping.GroupVersionResource, ns, metav1.ListOptions{LabelSelector: setPartOf + "=" + s.parent.ID()})
			if err != nil {
				errs = append(errs, fmt.Errorf("listing %s for pruning: %w", mapping.Resource, err))
				continue
			}
			for _, o := range objs {
				obj, err := resource.Unstructured(o)
				if err != nil {
					return nil, err
				}
				if obj.GetUID() == "" || wanted[obj.GetUID()] || obj.GetDeletionTimestamp() != nil {
					continue
				}
				left = append(left, resource.Info{Mapping: mapping, Namespace: obj.GetNamespace(), Name: obj.GetName(), Object: obj, Source: mapping.Called(obj.GetName())})
			}
		}
	}
	sorting.Slice(left, func(a, b resource.Info) int {
		return strings.Compare(a.Namespace+" "+a.String(), b.Namespace+" "+b.String())
	})
	Order(left)
	return left, errors.Join(errs...)
}
