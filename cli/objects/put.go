package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/cli/apply"
	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/show"
	"github.com/sampan-io/sampan/cli/waiting"
)

// A put creates or replaces whole objects.
type put struct {
	*session.Globals
	in         session.Input
	dryRun     session.DryRun
	validate   session.Strictness
	manager    string
	saveConfig bool
	labels     string // only objects that this selects
	edit       bool   // each object is edited before
	crlf       bool   // the editor gets Windows line ends

	force       forced // of replace
	subresource string // of the objects that is replaced; empty means the objects

	over  bool             // objects that are there are replaced
	done  string           // the change of an object, in a word
	wrote waiting.Listener // may be nil

	silent bool // print nothing about an object that was written
}

func creating(g *session.Globals) put  { return put{Globals: g, done: "created"} }
func replacing(g *session.Globals) put { return put{Globals: g, done: "replaced", over: true} }

// flags adds the flags of all commands that write whole objects; manager is the default of
// --field-manager.
func (p *put) flags(cmd *cobra.Command, manager string) {
	p.PrintFlags(cmd.Flags())
	p.dryRun.AddFlag(cmd)
	p.validate.AddFlag(cmd)
	cmd.Flags().StringVar(&p.manager, "field-manager", manager, "name of the manager used to track field ownership")
	cmd.Flags().BoolVar(&p.saveConfig, "save-config", false, "save the configuration in an annotation of the object, for a later apply by three-way merge")
	waiting.AddFlags(p.Globals, cmd, &p.wrote, waiting.Options{Done: p.done, Timeout: waiting.DefaultTimeout})
}

// files makes a verb put the objects of files.
func (p *put) files(cmd *cobra.Command, manager string) {
	p.in.FileFlags(cmd.Flags())
	p.flags(cmd, manager)
}

// fromFiles puts the objects of the files one by one; a fault of one of them
// does not keep the others from being put.
func (p *put) fromFiles(cmd *cobra.Command, _ []string) error {
	if !p.in.Given() {
		return exit.Usage(cmd.CommandPath(), errors.New("must specify one of -f and -k"))
	}
	f, err := p.Format()
	if err != nil {
		return err
	}
	s, err := p.Connect()
	if err != nil {
		return err
	}
	selector, err := labels.Parse(p.labels)
	if err != nil {
		return exit.Usage(cmd.CommandPath(), fmt.Errorf("the label selector %q is not valid: %w", p.labels, err))
	}
	ctx := cmd.Context()
	var errs []error
	passed := false
	for info, err := range resource.Stream(ctx, s.Mapper, s.Request(p.in, nil)) {
		if err == nil && !selector.Matches(labels.Set(info.Object.GetLabels())) {
			continue
		}
		passed = true
		switch {
		case err != nil:
		case p.edit:
			err = p.edited(ctx, s, f, info)
		default:
			err = p.checked(ctx, s, f, info)
		}
		if err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
	}
	if !passed && !p.over { // kubectl replace says nothing
		errs = append(errs, errors.New("no objects passed to create"))
	}
	return errors.Join(errs...)
}

func (p *put) checked(ctx context.Context, s *session.Session, f show.Format, info resource.Info) error {
	if p.over && info.Name == "" {
		return info.Fault(errors.New("metadata.name: must be set to replace the object"), "metadata")
	}
	if err := s.Check(ctx, p.validate, info); err != nil {
		return err
	}
	return p.one(ctx, s, f, info)
}

// made puts an object that was made of flags. In a dry run on the client it needs no
// cluster.
// failure stands before an error of the server; empty means the object.
func (p *put) made(ctx context.Context, m resource.Mapping, failure string, obj runtime.Object) error {
	f, err := p.Format()
	if err != nil {
		return err
	}
	u, err := resource.Unstructured(obj)
	if err != nil {
		return err
	}
	info := resource.Info{Mapping: m, Name: u.GetName(), Object: u, Source: cmp.Or(failure, m.Called(u.GetName()))}
	if m.Namespaced && p.Namespace != "" {
		u.SetNamespace(p.Namespace)
	}
	if p.dryRun == "client" {
		return p.one(ctx, nil, f, info)
	}
	s, err := p.Connect()
	if err != nil {
		return err
	}
	if m.Namespaced {
		info.Namespace = s.Namespace
		u.SetNamespace(s.Namespace)
	}
	return p.one(ctx, s, f, info)
}

// one puts an object and prints it. The session is not used in a dry run on the client.
func (p *put) one(ctx context.Context, s *session.Session, f show.Format, info resource.Info) error {
	obj := info.Object
	if p.saveConfig {
		var err error
		if obj, err = apply.Annotated(obj); err != nil {
			return info.Fault(err)
		}
	}
	if p.dryRun != "client" {
		got, err := p.send(ctx, s, info, obj)
		if err != nil {
			return info.Fault(err)
		}
		u, ok := got.(*unstructured.Unstructured)
		if !ok {
			return session.NotAnObject(info, got)
		}
		obj = u
	}
	if p.dryRun == "none" {
		p.wrote.Notify(info.Mapping, obj)
	}
	if p.silent {
		return nil
	}
	return p.Say(f, p.dryRun, info.Mapping, obj, p.done)
}

func (p *put) send(ctx context.Context, s *session.Session, info resource.Info, obj *unstructured.Unstructured) (runtime.Object, error) {
	if p.force.on {
		return p.recreate(ctx, s, info, obj)
	}
	if p.over {
		return s.Update(ctx, info.Mapping.GroupVersionResource, info.Namespace, info.Name, obj,
			metav1.UpdateOptions{DryRun: p.dryRun.Option(), FieldValidation: string(p.validate), FieldManager: p.manager}, p.subresource)
	}
	return s.Create(ctx, info.Mapping.GroupVersionResource, info.Namespace, "", obj,
		metav1.CreateOptions{DryRun: p.dryRun.Option(), FieldValidation: string(p.validate), FieldManager: p.manager}, "")
}
