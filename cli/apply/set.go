package apply

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/wait"
)

// A Set is the objects of one apply.
type Set struct {
	Applier *Applier

	// Request is how the objects were read; it settles the namespaces of those whose
	// kind the set defines itself.
	Request resource.Request

	// Check, if set, is asked about an object before it is applied.
	Check func(ctx context.Context, info resource.Info) error

	// Establish is how long a kind may take to be served after it was defined; 0 means
	// a minute.
	Establish time.Duration

	infos []resource.Info
	later []resource.Info // of kinds that are not served
	lacks map[schema.GroupVersionKind]error
}

// Add takes an object with what [resource.Stream] said about it. It returns the error,
// unless that is a kind which another object of the set may define.
func (s *Set) Add(info resource.Info, err error) error {
	var none *resource.NoKindError
	switch {
	case err == nil:
		s.infos = append(s.infos, info)
		return nil
	case errors.As(err, &none) && info.Object != nil:
		if s.lacks == nil {
			s.lacks = map[schema.GroupVersionKind]error{}
		}
		s.lacks[none.Kind] = none
		s.later = append(s.later, info)
		return nil
	}
	return err
}

// Len returns how many objects the set has.
func (s *Set) Len() int { return len(s.infos) + len(s.later) }

// Prepare puts the objects in order and refuses those of kinds that are neither served
// nor defined by the set. It must be called once, before [Set.Apply].
func (s *Set) Prepare() error {
	defined := map[schema.GroupVersionKind]bool{}
	for _, info := range s.infos {
		for _, kind := range definedBy(info) {
			defined[kind] = true
		}
	}
	var errs []error
	later := s.later
	s.later = nil
	for _, info := range later {
		kind := info.Object.GroupVersionKind()
		if !defined[kind] {
			errs = append(errs, info.Fault(s.lacks[kind], "kind"))
			continue
		}
		if info.Namespace = info.Object.GetNamespace(); info.Namespace == "" {
			info.Namespace = s.Request.Namespace // it may be; the kind is not known
		}
		s.later = append(s.later, info)
	}
	s.infos = append(s.infos, s.later...)
	s.later = nil
	Order(s.infos)
	return errors.Join(errs...)
}

// Infos returns the objects in the order in which they are applied. Those of kinds that
// are not served yet have no mapping.
func (s *Set) Infos() []resource.Info { return s.infos }

// definedBy returns the kinds that a CustomResourceDefinition defines.
func definedBy(info resource.Info) []schema.GroupVersionKind {
	if kindOf(info) != (schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}) {
		return nil
	}
	group, _, _ := unstructured.NestedString(info.Object.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(info.Object.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(info.Object.Object, "spec", "versions")
	var kinds []schema.GroupVersionKind
	for _, v := range versions {
		if version, ok := v.(map[string]any); ok {
			if name, ok := version["name"].(string); ok && version["served"] == true {
				kinds = append(kinds, schema.GroupVersionKind{Group: group, Version: name, Kind: kind})
			}
		}
	}
	return kinds
}

// Applied is an object and what became of it.
type Applied struct {
	Info   resource.Info
	Result Result
}

// Apply applies the objects one after the other and yields each with its result, or the
// error that it met. It goes on after errors, as far as that makes sense: an object of a
// kind that was not established is an error of its own.
func (s *Set) Apply(ctx context.Context) iter.Seq2[Applied, error] {
	return func(yield func(Applied, error) bool) {
		var fresh []resource.Info // definitions, until they are established
		for _, info := range s.infos {
			if ctx.Err() != nil {
				yield(Applied{Info: info}, context.Cause(ctx))
				return
			}
			if len(fresh) > 0 && len(definedBy(info)) == 0 {
				if err := s.establish(ctx, fresh); err != nil && !yield(Applied{}, err) {
					return
				}
				fresh = nil
			}
			info, r, err := s.one(ctx, info)
			if err == nil && len(definedBy(info)) > 0 {
				fresh = append(fresh, info)
			}
			if !yield(Applied{info, r}, err) {
				return
			}
		}
	}
}

func (s *Set) one(ctx context.Context, info resource.Info) (resource.Info, Result, error) {
	if info.Mapping.Kind == "" {
		if s.Applier.opts.DryRun != ForReal {
			return info, Result{}, info.Fault(fmt.Errorf("kind %q is defined by a CustomResourceDefinition of this set, which a dry run does not create: the object was not checked", info.Object.GetKind()), "kind")
		}
		var err error
		if info, err = s.Request.Resolve(ctx, s.Applier.opts.Mapper, info); err != nil {
			return info, Result{}, info.Fault(err)
		}
	}
	if s.Check != nil {
		if err := s.Check(ctx, info); err != nil {
			return info, Result{}, err
		}
	}
	r, err := s.Applier.Apply(ctx, info)
	return info, r, err
}

// A server may publish a kind in its discovery a moment after it is established.
const (
	discoveryPause = 50 * time.Millisecond
	discoveryLimit = 10 * time.Second
)

// establish waits until the kinds that definitions define are served.
func (s *Set) establish(ctx context.Context, definitions []resource.Info) error {
	o := s.Applier.opts
	if o.DryRun != ForReal {
		return nil
	}
	req := await.Request{For: await.Condition("Established", "True"), Timeout: s.Establish, Fail: await.FailNever}
	if req.Timeout == 0 {
		req.Timeout = time.Minute
	}
	for _, d := range definitions {
		req.Targets = append(req.Targets, await.Target{Resource: d.Mapping.GroupVersionResource, Kind: d.Mapping.Kind, Name: d.Name})
	}
	out, err := await.Until(ctx, o.Client, req, func(await.Progress) {})
	if err != nil {
		return err
	}
	if out.Result != await.AllDone {
		return fmt.Errorf("CustomResourceDefinitions are not established (%s): see 'sampan get crd'", out.Result)
	}
	return wait.Until(ctx, wait.Pace{First: discoveryPause, Limit: discoveryLimit}, func(ctx context.Context) (bool, error) {
		o.Mapper.Forget()
		for _, d := range definitions {
			for _, kind := range definedBy(d) {
				var none *resource.NoKindError
				if _, err := o.Mapper.ByKind(ctx, kind); errors.As(err, &none) {
					return false, wait.NotYet(none)
				} else if err != nil {
					return false, err
				}
			}
		}
		return true, nil
	})
}
