package apiserver

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
)

// A Local performs requests as one user without HTTP. It has the methods of
// client.Interface and keeps its contract. Objects that come out are
// the server's own decoded ones: they are shared and must not be changed. Objects that
// go in are copied.
type Local struct {
	server *Server
	user   *auth.User
	agent  string // as the User-Agent of a client over HTTP
	unseen bool   // webhooks and policies are not asked about its writes
}

// As returns a client for a user, who is believed to be that. It may be used before and
// after [Server.Run] for as long as the store works.
func (s *Server) As(user auth.User) *Local {
	return &Local{server: s, user: &user, agent: agentOf(user.Name)}
}

// Unseen returns a client about whose writes webhooks and policies are not asked: for objects without which the API server
// does not start. A broken webhook for everything must not keep the administrator from removing it.
func (l *Local) Unseen() *Local {
	unseen := *l
	unseen.unseen = true
	return &unseen
}

// agentOf returns for whom the writes of a part of this program count that name no manager: the program that the user
// is a part of upstream. The service accounts of kube-system are controllers, the others are named by the end of the
// user's name, such as "kube-scheduler".
func agentOf(user string) string {
	switch {
	case strings.HasPrefix(user, "system:node:"):
		return "kubelet"
	case strings.HasPrefix(user, auth.ServiceAccountUser("kube-system", "")):
		return "kube-controller-manager"
	}
	return user[strings.LastIndex(user, ":")+1:]
}

// failed makes the panic of a request, if it did, the error that a client over HTTP gets. The
// caller is a part of this process, which must not end with it.
func (l *Local) failed(recovered any, verb string, gvr schema.GroupVersionResource, namespace, name string, err *error) {
	if fault := run.Panicked(recovered); fault != nil {
		l.server.opts.Log.Error("panic while serving a request in process", "user", l.user.Name, "verb", verb, "resource", gvr.GroupResource(), "namespace", namespace, "name", name, "err", fault)
		*err = apierrors.NewInternalError(operation.ErrPanic)
	}
}

// target finds the kind and subresource that a call names.
func (l *Local) target(ctx context.Context, gvr schema.GroupVersionResource, namespace, name, subresource string) (operation.Target, error) {
	t := operation.Target{User: l.user, Local: true, Agent: l.agent, Inner: l.unseen, Namespace: namespace, Name: name, Kind: l.server.opts.Catalog.Resource(gvr)}
	if t.Kind == nil {
		var err error
		if t.Kind, err = l.server.objects.Appearing(ctx, gvr); err != nil {
			return t, err
		}
	}
	if t.Kind == nil {
		return t, apierrors.NewGenericServerResponse(404, "", gvr.GroupResource(), name, fmt.Sprintf("%s is not served", gvr), 0, true)
	}
	if !t.Kind.Namespaced {
		t.Namespace = ""
	}
	if subresource != "" {
		t.Sub = t.Kind.Subresource(subresource)
		if _, stream := t.Shape().(catalog.Stream); t.Sub == nil || stream {
			return t, apierrors.NewGenericServerResponse(404, "", gvr.GroupResource(), name, fmt.Sprintf("%s has no subresource %q that is an object", gvr, subresource), 0, true)
		}
	}
	return t, nil
}

// shown returns the result of an operation, in the version that the caller uses.
func shown(ctx context.Context, t *operation.Target, r operation.Result, err error) (runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	if r, err = r.In(ctx, t.Kind); err != nil {
		return nil, err
	}
	return r.Object(), nil
}

// namesOne checks that a call for a single object names it completely.
func namesOne(t *operation.Target) error {
	if t.Name == "" {
		return apierrors.NewBadRequest("name is required")
	}
	if t.Kind.Namespaced && t.Namespace == "" {
		return apierrors.NewBadRequest("an empty namespace may not be set when a resource name is provided")
	}
	return nil
}

func (l *Local) single(ctx context.Context, gvr schema.GroupVersionResource, namespace, name, subresource, verb string) (operation.Target, error) {
	t, err := l.target(ctx, gvr, namespace, name, subresource)
	if err != nil {
		return t, err
	}
	if err := namesOne(&t); err != nil {
		return t, err
	}
	if !t.Serves(verb) {
		return t, apierrors.NewMethodNotSupported(t.Kind.GR(), verb)
	}
	return t, nil
}

// Get implements client.Interface.
func (l *Local) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, subresource string) (_ runtime.Object, err error) {
	defer func() { l.failed(recover(), "get", gvr, namespace, name, &err) }()
	t, err := l.single(ctx, gvr, namespace, name, subresource, operation.VerbGet)
	if err != nil {
		return nil, err
	}
	ctx, record, err := l.audited(ctx, &t, operation.VerbGet, nil)
	if err != nil {
		return nil, err
	}
	r, err := l.server.objects.Get(ctx, t, metav1.GetOptions{})
	endAudit(record, r, err)
	return shown(ctx, &t, r, err)
}

// List implements client.Interface.
func (l *Local) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (_ []runtime.Object, _ metav1.ListMeta, err error) {
	defer func() { l.failed(recover(), "list", gvr, namespace, "", &err) }()
	t, err := l.target(ctx, gvr, namespace, "", "")
	if err != nil {
		return nil, metav1.ListMeta{}, err
	}
	ctx, record, err := l.audited(ctx, &t, operation.VerbList, nil)
	if err != nil {
		return nil, metav1.ListMeta{}, err
	}
	got, err := l.server.objects.List(ctx, t, opts)
	if err == nil {
		got.Record(record, t.Kind)
	}
	endAudit(record, operation.Result{}, err)
	if err != nil {
		return nil, metav1.ListMeta{}, err
	}
	objs := make([]runtime.Object, len(got.Items))
	for i, item := range got.Items {
		shown, err := item.In(ctx, t.Kind)
		if err != nil {
			return nil, metav1.ListMeta{}, operation.StatusError(err)
		}
		objs[i] = shown.Object()
	}
	return objs, got.Meta, nil
}

// Watch implements client.Interface. Without TimeoutSeconds it lasts as long as ctx. Without it there
// are no bookmarks but the one at the end of the state.
func (l *Local) Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error] {
	return func(yield func(watch.Event, error) bool) {
		t, err := l.target(ctx, gvr, namespace, "", "")
		if err != nil {
			yield(watch.Event{}, err)
			return
		}
		ctx, record, err := l.audited(ctx, &t, operation.VerbWatch, nil)
		if err != nil {
			yield(watch.Event{}, err)
			return
		}
		asked := ctx
		if t.Kind.Untyped() {
			var end context.CancelFunc
			ctx, end = operation.WhileServed(ctx, t.Kind)
			defer end()
		}
		changes, err := l.server.objects.Watch(ctx, t, opts)
		if err != nil {
			endAudit(record, operation.Result{}, err)
			yield(watch.Event{}, err)
			return
		}
		record.Started(http.StatusOK)
		defer record.Complete()
		for c, err := range changes {
			var ev watch.Event
			var shown *codec.Item
			if err == nil && c.Item != nil {
				shown, err = c.Item.In(ctx, t.Kind)
			}
			switch {
			case err != nil:
				yield(ev, err)
				return
			case shown != nil:
				ev = watch.Event{Type: c.Type, Object: shown.Object()}
			case c.Type != "":
				ev = watch.Event{Type: c.Type, Object: codec.EmptyObject(t.Kind, c.ResourceVersion, c.Annotations)}
			default:
				continue
			}
			if !yield(ev, nil) {
				return
			}
		}
		if asked.Err() == nil {
			yield(watch.Event{}, apierrors.NewTimeoutError("the timeout of the watch has passed", 0))
		}
	}
}

// Create implements client.Interface.
func (l *Local) Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource string) (_ runtime.Object, err error) {
	defer func() { l.failed(recover(), "create", gvr, namespace, name, &err) }()
	t, err := l.target(ctx, gvr, namespace, name, subresource)
	if err != nil {
		return nil, err
	}
	if t.Sub != nil {
		err = namesOne(&t)
	} else if t.Name = ""; t.Kind.Namespaced && t.Namespace == "" {
		err = apierrors.NewBadRequest("an empty namespace may not be set during creation")
	}
	if err != nil {
		return nil, err
	}
	if !t.Serves(operation.VerbCreate) {
		return nil, apierrors.NewMethodNotSupported(t.Kind.GR(), operation.VerbCreate)
	}
	body, err := copyIn(&t, obj)
	if err != nil {
		return nil, err
	}
	ctx, record, err := l.audited(ctx, &t, operation.VerbCreate, body)
	if err != nil {
		return nil, err
	}
	r, err := l.server.objects.Create(ctx, t, body, opts)
	endAudit(record, r, err)
	return shown(ctx, &t, r, err)
}

// Update implements client.Interface.
func (l *Local) Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.UpdateOptions, subresource string) (_ runtime.Object, err error) {
	defer func() { l.failed(recover(), "update", gvr, namespace, name, &err) }()
	t, err := l.single(ctx, gvr, namespace, name, subresource, operation.VerbUpdate)
	if err != nil {
		return nil, err
	}
	body, err := copyIn(&t, obj)
	if err != nil {
		return nil, err
	}
	ctx, record, err := l.audited(ctx, &t, operation.VerbUpdate, body)
	if err != nil {
		return nil, err
	}
	r, err := l.server.objects.Update(ctx, t, body, opts)
	endAudit(record, r, err)
	return shown(ctx, &t, r, err)
}

// copyIn copies an object that a caller goes on using (S3), if it has the type that t
// takes, and normalizes the copy: it may hold what no decoder makes.
func copyIn(t *operation.Target, obj runtime.Object) (runtime.Object, error) {
	want, gvk := t.NewBody()
	if fmt.Sprintf("%T", want) != fmt.Sprintf("%T", obj) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a %T cannot be handled as a %s", obj, gvk.Kind))
	}
	body := obj.DeepCopyObject()
	body.GetObjectKind().SetGroupVersionKind(gvk)
	if err := codec.Normalize(body); err != nil {
		return nil, err
	}
	_, err := t.Coerce(body, codec.Ignore)
	return body, err
}

// Patch implements client.Interface.
func (l *Local) Patch(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, kind types.PatchType, patch []byte, opts metav1.PatchOptions, subresource string) (_ runtime.Object, err error) {
	defer func() { l.failed(recover(), "patch", gvr, namespace, name, &err) }()
	t, err := l.single(ctx, gvr, namespace, name, subresource, operation.VerbPatch)
	if err != nil {
		return nil, err
	}
	ctx, record, err := l.audited(ctx, &t, operation.VerbPatch, nil)
	if err != nil {
		return nil, err
	}
	operation.RecordPatch(record, kind, patch)
	r, _, err := l.server.objects.Patch(ctx, t, kind, patch, opts)
	endAudit(record, r, err)
	return shown(ctx, &t, r, err)
}

// Delete implements client.Interface.
func (l *Local) Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) (err error) {
	defer func() { l.failed(recover(), "delete", gvr, namespace, name, &err) }()
	t, err := l.single(ctx, gvr, namespace, name, "", operation.VerbDelete)
	if err != nil {
		return err
	}
	ctx, record, err := l.audited(ctx, &t, operation.VerbDelete, &opts)
	if err != nil {
		return err
	}
	r, err := l.server.objects.Delete(ctx, t, opts)
	endAudit(record, r, err)
	return err
}

// Reader returns the reader of stored objects for admission plug-ins, the authorizer and the
// authenticator. It does not check permissions.
func (s *Server) Reader() admission.Reader { return operation.NewReader(s.opts.Catalog, s.opts.Store) }
