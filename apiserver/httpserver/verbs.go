package httpserver

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/past"
	"github.com/sampan-io/sampan/apiserver/patch"
	"github.com/sampan-io/sampan/apiserver/rbac"
)

// offerOf says in which forms t can be shown: a body of a subresource, and what can only be posted, in none but its own.
func offerOf(t *operation.Target) codec.Offer {
	return codec.Offer{Forms: t.Kind.NewList != nil && t.Body() == nil, Untyped: t.Kind.Untyped() && t.Body() == nil}
}

// conclude answers with the result of an operation, or its error.
func (x *exchange) conclude(m codec.Media, r operation.Result, err error, t *operation.Target) {
	if err != nil {
		x.warn(r.Warnings)
		x.fail(err)
		return
	}
	x.answer(m, r, t)
}

func (s *Server) serveGet(x *exchange, t operation.Target) {
	m, ok := x.media(offerOf(&t))
	if !ok {
		return
	}
	var opts metav1.GetOptions
	if q := x.query(); q != nil {
		if isTrue(q, "export") {
			x.fail(apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported"))
			return
		}
		opts.ResourceVersion = q.Get("resourceVersion")
		var err error
		if t.At, err = momentOf(q); err != nil {
			x.fail(err)
			return
		}
	}
	r, err := s.objects.Get(x.r.Context(), t, opts)
	if r.At > 0 {
		x.Header().Set(past.Header, strconv.FormatUint(uint64(r.At), 10))
	}
	x.conclude(m, r, err, &t)
}

func (s *Server) serveList(x *exchange, t operation.Target) {
	m, ok := x.media(offerOf(&t))
	if !ok {
		return
	}
	q := x.query()
	opts, err := listOptions(q)
	if err != nil {
		x.fail(err)
		return
	}
	if t.At, err = momentOf(q); err != nil {
		x.fail(err)
		return
	}
	l, err := s.objects.List(x.r.Context(), t, opts)
	if err != nil {
		x.fail(err)
		return
	}
	if t.At != "" {
		x.Header().Set(past.Header, l.Meta.ResourceVersion)
	}
	x.answerList(m, l, &t)
}

var listBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(io.Discard, onePiece) }} // a pool is state of the process by its nature

func (x *exchange) answerList(m codec.Media, l operation.Listing, t *operation.Target) {
	x.warn(l.Warnings(t))
	if m.Form != codec.Whole {
		obj, err := x.reshapeList(m.Form, l, t)
		if err != nil {
			x.fail(err)
			return
		}
		body, err := codec.Encode(m, obj)
		if err != nil {
			x.fail(apierrors.NewInternalError(err))
			return
		}
		x.audit.Answered(obj)
		x.send(http.StatusOK, m.Encoding, body)
		return
	}
	l.Record(x.audit, t.Kind)
	h := x.Header()
	h["Content-Type"] = contentTypes[m.Encoding]
	h["Cache-Control"] = noCache
	if x.compresses() {
		c := &compressor{x: x}
		defer c.release()
		x.writeList(c, m, l, t)
		c.end()
		return
	}
	x.WriteHeader(http.StatusOK)
	x.writeList(x, m, l, t)
}

func (x *exchange) writeList(to io.Writer, m codec.Media, l operation.Listing, t *operation.Target) {
	w := listBuffers.Get().(*bufio.Writer)
	w.Reset(to)
	defer func() {
		w.Reset(io.Discard)
		listBuffers.Put(w)
	}()
	if err := codec.WriteList(w, m, t.Kind, l.Meta, l.Items); err != nil {
		panic(http.ErrAbortHandler) // the client has gone, or must see that the list has no end
	}
	x.seat.release()
	_ = w.Flush()
}

// decode reads the body into obj; what validation warns of becomes headers.
func (x *exchange) decode(obj runtime.Object, want schema.GroupVersionKind, validation string) error {
	return x.decoded(nil, obj, want, nil, validation)
}

// decoded is decode for a body that may also name one of the other versions. Of t, if it is not nil, the body is the object.
func (x *exchange) decoded(t *operation.Target, obj runtime.Object, want schema.GroupVersionKind, others []schema.GroupVersion, validation string) error {
	e, err := codec.BodyEncoding(x.r.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	return x.body(func(b []byte) error {
		warnings, err := codec.Decode(x.r.Context(), e, b, obj, want, codec.ValidationOf(validation), others...)
		if err != nil {
			return err
		}
		unknown, err := t.Coerce(obj, codec.ValidationOf(validation))
		if err != nil {
			return err
		}
		x.warn(append(warnings, unknown...))
		x.audit.Sent(obj)
		return nil
	})
}

func (s *Server) serveCreate(x *exchange, t operation.Target) {
	m, ok := x.media(offerOf(&t))
	if !ok {
		return
	}
	var opts metav1.CreateOptions
	if q := x.query(); q != nil {
		opts = metav1.CreateOptions{DryRun: q["dryRun"], FieldManager: q.Get("fieldManager"), FieldValidation: q.Get("fieldValidation")}
	}
	body, want := t.NewBody()
	var others []schema.GroupVersion
	if b := t.Body(); b != nil {
		others = b.Versions
	}
	if err := x.decoded(&t, body, want, others, opts.FieldValidation); err != nil {
		x.fail(err)
		return
	}
	r, err := s.objects.Create(x.r.Context(), t, body, opts)
	x.conclude(m, r, err, &t)
}

// serveBindings serves POST .../namespaces/NS/bindings, the older path of a pod's
// binding: the body names the pod.
func (s *Server) serveBindings(x *exchange, t operation.Target, p path) {
	t.Kind = s.opts.Catalog.Resource(schema.GroupVersionResource{Group: p.group, Version: p.version, Resource: "pods"})
	if t.Kind != nil {
		t.Sub = t.Kind.Subresource("binding")
	}
	if t.Sub == nil || p.namespace == "" {
		s.unknown(x, &p)
		return
	}
	x.subject, x.writes = subject{verb: "POST", version: p.version, resource: "pods", subresource: "binding", scope: "resource"}, true
	verb := verbOf(x.r, &p)
	// The right is that to create bindings, not that to create pods/binding, as upstream.
	if err := s.objects.Authorize(x.r.Context(), rbac.Attributes{User: x.user, Verb: verb, Version: p.version, Resource: p.resource, Namespace: p.namespace}); err != nil {
		x.fail(err)
		return
	}
	if verb != operation.VerbCreate {
		x.fail(apierrors.NewMethodNotSupported(schema.GroupResource{Resource: p.resource}, verb))
		return
	}
	t.Allowed = true
	m, ok := x.media(codec.Offer{})
	if !ok {
		return
	}
	if !s.beginWrite(x) {
		return
	}
	defer x.finish()
	opts := metav1.CreateOptions{DryRun: x.query()["dryRun"]}
	body, want := t.NewBody()
	err := x.decode(body, want, metav1.FieldValidationWarn)
	if err == nil {
		t, err = named(t, body)
	}
	if err != nil {
		x.fail(err)
		return
	}
	r, err := s.objects.Create(x.r.Context(), t, body, opts)
	x.conclude(m, r, err, &t)
}

func (s *Server) serveUpdate(x *exchange, t operation.Target) {
	m, ok := x.media(offerOf(&t))
	if !ok {
		return
	}
	var opts metav1.UpdateOptions
	if q := x.query(); q != nil {
		opts = metav1.UpdateOptions{DryRun: q["dryRun"], FieldManager: q.Get("fieldManager"), FieldValidation: q.Get("fieldValidation")}
	}
	body, want := t.NewBody()
	err := x.decoded(&t, body, want, nil, opts.FieldValidation)
	if err != nil {
		x.fail(err)
		return
	}
	r, err := s.objects.Update(x.r.Context(), t, body, opts)
	x.conclude(m, r, err, &t)
}

func (s *Server) servePatch(x *exchange, t operation.Target) {
	m, ok := x.media(offerOf(&t))
	if !ok {
		return
	}
	var opts metav1.PatchOptions
	if q := x.query(); q != nil {
		opts = metav1.PatchOptions{DryRun: q["dryRun"], FieldManager: q.Get("fieldManager"), FieldValidation: q.Get("fieldValidation")}
		if q.Has("force") {
			force := isTrue(q, "force")
			opts.Force = &force
		}
	}
	kind, err := patch.TypeOf(x.r.Header.Get("Content-Type"), t.PatchTypes())
	if err != nil {
		x.fail(err)
		return
	}
	var r operation.Result
	err = x.body(func(b []byte) error {
		operation.RecordPatch(x.audit, kind, b)
		var warnings []string
		r, warnings, err = s.objects.Patch(x.r.Context(), t, kind, b, opts)
		x.warn(warnings)
		return err
	})
	x.conclude(m, r, err, &t)
}

// readDeleteOptions reads a DELETE's options from its body or, if that is empty, from
// the URL.
func (x *exchange) readDeleteOptions() (opts metav1.DeleteOptions, err error) {
	empty := true
	err = x.body(func(b []byte) error {
		if empty = len(b) == 0; empty {
			return nil
		}
		e, err := codec.BodyEncoding(x.r.Header.Get("Content-Type"))
		if err != nil {
			return err
		}
		if err := codec.DecodeDeleteOptions(x.r.Context(), e, b, &opts); err != nil {
			return err
		}
		x.audit.Sent(&opts)
		return nil
	})
	if err == nil && empty {
		err = deleteOptions(x.query(), &opts)
	}
	return opts, err
}

// deletion returns the encoding of the answer and the options of a DELETE, unless the request is answered because they
// are wrong.
func (x *exchange) deletion(t *operation.Target) (m codec.Media, opts metav1.DeleteOptions, ok bool) {
	if m, ok = x.media(offerOf(t)); !ok {
		return m, opts, false
	}
	opts, err := x.readDeleteOptions()
	if err != nil {
		x.fail(err)
	}
	return m, opts, err == nil
}

func (s *Server) serveDelete(x *exchange, t operation.Target) {
	m, opts, ok := x.deletion(&t)
	if !ok {
		return
	}
	r, err := s.objects.Delete(x.r.Context(), t, opts)
	x.conclude(m, r, err, &t)
}

func (s *Server) serveDeleteCollection(x *exchange, t operation.Target) {
	m, opts, ok := x.deletion(&t)
	if !ok {
		return
	}
	list, err := listOptions(x.query())
	if err != nil {
		x.fail(err)
		return
	}
	l, err := s.objects.DeleteCollection(x.r.Context(), t, list, opts)
	if err != nil {
		x.warn(l.Warnings(&t))
		x.fail(err)
		return
	}
	x.answerList(m, l, &t)
}

// named returns t with the name that the body of a binding has.
func named(t operation.Target, body runtime.Object) (operation.Target, error) {
	m, ok := body.(metav1.Object)
	if !ok || m.GetName() == "" {
		return t, apierrors.NewInvalid(t.Body().Kind.GroupKind(), "", field.ErrorList{field.Required(field.NewPath("metadata", "name"), "names the pod")})
	}
	t.Name = m.GetName()
	return t, nil
}
