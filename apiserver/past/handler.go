package past

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/changes"
	"github.com/sampan-io/sampan/store"
)

// A Handler serves [changes.Path]. GET answers with the changes of an object, of a type, or of all types: a user sees
// those of the types that it may list, or of the object that it may get. DELETE removes values from the history, for
// users who may delete the path.
//
//	resource    "pods" or "deployments.apps"; all but Leases and Events if it is missing
//	namespace   all and none if it is missing
//	name        of the object
//	after, to   moments: a revision, a time, or a duration before now
//	limit       of the newest changes
//	secrets     "plain" shows the values of Secrets
//	all         "true" with DELETE: the values of all objects
type Handler struct {
	History    *History
	Catalog    *catalog.Catalog
	Authorizer interface {
		Authorize(ctx context.Context, a rbac.Attributes) rbac.Decision
	}

	// Fail answers a request with an error.
	Fail func(w http.ResponseWriter, r *http.Request, err error)
}

// Path is the path of a [Handler].
const Path = changes.Path

// How many changes an answer has, by default and at most.
const (
	usualLimit = 500
	mostLimit  = 10_000
)

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	serve := h.read
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodDelete:
		serve = h.purge
	default:
		h.Fail(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: changes.Path}, r.Method))
		return
	}
	out := &lines{w: w, buf: bufio.NewWriter(w)}
	err := serve(r, out)
	if err == nil {
		err = out.buf.Flush()
	}
	switch {
	case err == nil:
	case !out.begun && r.Context().Err() == nil:
		h.Fail(w, r, fault(err))
	default:
		panic(http.ErrAbortHandler) // the client must not take this for the end
	}
}

// lines writes one JSON value per line.
type lines struct {
	w     http.ResponseWriter
	buf   *bufio.Writer
	begun bool
}

func (l *lines) write(v any) error {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/json; stream=lines")
		l.w.Header().Set("Cache-Control", "no-store")
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = l.buf.Write(append(text, '\n'))
	return err
}

// A scope is the objects that a request is about.
type scope struct {
	kinds     []*catalog.Kind // hubs
	single    bool            // the request names the kind
	namespace string
	name      string
}

func bad(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

// scopeOf reads the parameters that name objects.
func (h *Handler) scopeOf(q url.Values) (scope, error) {
	s := scope{namespace: q.Get("namespace"), name: q.Get("name")}
	if strings.Contains(s.namespace+s.name, "/") {
		return s, bad("namespace, name: must not contain a slash")
	}
	hubs := h.Catalog.Snapshot().Hubs()
	resource := q.Get("resource")
	if resource == "" {
		if s.name != "" {
			return s, bad("name: needs resource as well")
		}
		for _, k := range hubs {
			if !k.Answered() && !frequent(k) && (k.Namespaced || s.namespace == "") {
				s.kinds = append(s.kinds, k)
			}
		}
		return s, nil
	}
	gr := schema.ParseGroupResource(resource)
	at := slices.IndexFunc(hubs, func(k *catalog.Kind) bool { return k.GR() == gr })
	switch {
	case at < 0 || hubs[at].Answered():
		return s, bad("resource: %q is not a resource with stored objects, want a name such as pods or deployments.apps", resource)
	case hubs[at].Namespaced && s.name != "" && s.namespace == "":
		return s, bad("name: needs namespace as well, because %s are namespaced", resource)
	case !hubs[at].Namespaced:
		s.namespace = ""
	}
	s.kinds, s.single = hubs[at:at+1], true
	return s, nil
}

// frequent reports whether the objects of a kind are left out where no kind is named: there are many, and they say
// nothing about the changes of users.
func frequent(k *catalog.Kind) bool { return k.Resource == "leases" || k.Resource == "events" }

// allowed keeps the kinds that the user may read, and returns the names of the others. The error is that of a user who
// may read none.
func (h *Handler) allowed(ctx context.Context, s *scope) (omitted []string, err error) {
	user, ok := auth.UserFrom(ctx)
	if !ok {
		return nil, errors.New("the request has no user")
	}
	verb := "list"
	if s.name != "" {
		verb = "get"
	}
	var refused error
	s.kinds = slices.DeleteFunc(slices.Clone(s.kinds), func(k *catalog.Kind) bool {
		a := rbac.Attributes{User: user, Verb: verb, Group: k.Group, Version: k.Version, Resource: k.Resource, Namespace: s.namespace, Name: s.name}
		d := h.Authorizer.Authorize(ctx, a)
		if !d.Allowed {
			refused = rbac.Forbidden(a, d)
			omitted = append(omitted, k.GR().String())
		}
		return !d.Allowed
	})
	if len(s.kinds) == 0 && refused != nil {
		return nil, refused
	}
	return omitted, nil
}

// matcher matches the keys of the scope, and finds their kinds.
type matcher map[string]wanted // by the first segment of keys

type wanted struct {
	kind  *catalog.Kind
	match func(key []byte) bool
}

func (s *scope) matcher() matcher {
	m := matcher{}
	for _, k := range s.kinds {
		prefix := k.Prefix(s.namespace)
		if s.name != "" {
			prefix = k.Key(s.namespace, s.name)
		}
		m[strings.TrimSuffix(k.Prefix(""), "/")] = wanted{k, under(prefix)}
	}
	return m
}

func (m matcher) match(key []byte) bool {
	for i, c := range key {
		if c == '/' {
			w, ok := m[string(key[:i])]
			return ok && w.match(key)
		}
	}
	return false
}

func (m matcher) kindOf(key string) *catalog.Kind {
	first, _, _ := strings.Cut(key, "/")
	return m[first].kind
}

// read answers with changes.
func (h *Handler) read(r *http.Request, out *lines) error {
	ctx, q := r.Context(), r.URL.Query()
	s, err := h.scopeOf(q)
	if err != nil {
		return err
	}
	limit := usualLimit
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mostLimit {
			return bad("limit: must be from 1 to %d, got %q", mostLimit, text)
		}
	}
	plain := false
	switch form := q.Get("secrets"); form {
	case "", "masked":
	case "plain":
		plain = true
	default:
		return bad("secrets: must be masked or plain, got %q", form)
	}
	omitted, err := h.allowed(ctx, &s)
	if err != nil {
		return err
	}
	user, _ := auth.UserFrom(ctx) // allowed has found it
	p, release, err := h.History.open(ctx, user.Name)
	if err != nil {
		return err
	}
	defer release()
	span, err := p.Span(ctx)
	if err != nil {
		return err
	}
	query := store.PastQuery{To: h.History.opts.Store.Revision(), Limit: limit}
	head := changes.Header{From: uint64(span.From), Since: span.Since, Revision: uint64(query.To), Omitted: omitted}
	now := time.Now()
	if text := q.Get("after"); text != "" {
		query.After, err = h.History.moment(ctx, p, "after", text, now)
		if _, expired := errors.AsType[*store.ExpiredError](err); err != nil && !expired {
			return err // the header says since when there is history
		}
	}
	if text := q.Get("to"); text != "" {
		if query.To, err = h.History.moment(ctx, p, "to", text, now); err != nil {
			return err
		}
	}
	m := s.matcher()
	query.Match = m.match
	converting, cancel := context.WithTimeout(ctx, conversionTimeout)
	defer cancel()
	d := differ{decoder{h.History.opts.Decode()}, plain}
	begin := func() error {
		if out.begun {
			return nil
		}
		return out.write(head)
	}
	left, err := p.Writes(ctx, query, func(w store.PastWrite) error {
		if err := begin(); err != nil {
			return err
		}
		return out.write(d.change(converting, m.kindOf(w.Key), w))
	})
	if err == nil {
		err = begin()
	}
	if err != nil {
		return err
	}
	return out.write(changes.End{End: true, Earlier: left})
}

// A differ makes changes of writes.
type differ struct {
	decoder
	plain bool // show the values of Secrets
}

// conversionTimeout is how long the webhooks of custom resources may take for all changes of an answer.
const conversionTimeout = 30 * time.Second

func (d differ) change(ctx context.Context, kind *catalog.Kind, w store.PastWrite) changes.Change {
	c := changes.Change{
		Revision: uint64(w.Revision), User: w.Author.User, Agent: w.Author.Agent, Operation: changes.Changed,
		Group: kind.Group, Version: kind.Version, Resource: kind.Resource, Kind: kind.Kind,
	}
	if w.At > 0 {
		c.Time = time.UnixMilli(w.At).UTC()
	}
	c.Name = strings.TrimPrefix(w.Key, kind.Prefix(""))
	if kind.Namespaced {
		c.Namespace, c.Name, _ = strings.Cut(c.Name, "/")
	}
	switch {
	case w.Deleted:
		c.Operation = changes.Deleted
		return c
	case w.Before.Key == "":
		c.Operation = changes.Created
		return c
	}
	before, err := d.object(ctx, kind, w.Before)
	var after map[string]any
	if err == nil {
		after, err = d.object(ctx, kind, w.Entry)
	}
	if err != nil {
		c.Note = err.Error()
		return c
	}
	if kind.Group == "" && kind.Resource == "secrets" && !d.plain {
		before, after = changes.Mask(before, after)
	}
	c.Fields, c.More = changes.Fields(before, after)
	return c
}

// object returns an entry as an object, as JSON decodes it, in the version that is stored.
func (d differ) object(ctx context.Context, kind *catalog.Kind, e store.Entry) (map[string]any, error) {
	if e.Data == nil {
		return nil, ErrPurged
	}
	item, err := d.item(kind, e).In(ctx, kind)
	if err != nil {
		return nil, err
	}
	if fault := item.Fault(); fault != nil {
		return nil, fault
	}
	obj := item.Object()
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.Object, nil
	}
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var m map[string]any
	err = decoder.Decode(&m)
	return m, err
}

// purge removes values.
func (h *Handler) purge(r *http.Request, out *lines) error {
	ctx, q := r.Context(), r.URL.Query()
	user, ok := auth.UserFrom(ctx)
	if !ok {
		return errors.New("the request has no user")
	}
	a := rbac.Attributes{User: user, Verb: "delete", Path: changes.Path}
	if d := h.Authorizer.Authorize(ctx, a); !d.Allowed {
		return rbac.Forbidden(a, d)
	}
	match := func([]byte) bool { return true }
	switch all := q.Get("all"); all {
	case "true":
		if q.Get("resource")+q.Get("namespace")+q.Get("name") != "" {
			return bad("all: must not be used with resource, namespace or name")
		}
	case "":
		if q.Get("resource") == "" || q.Get("name") == "" {
			return bad("resource, name: name the object, or pass all=true")
		}
		key, err := h.purged(q)
		if err != nil {
			return err
		}
		match = under(key)
	default:
		return bad("all: must be true or missing, got %q", all)
	}
	if h.History == nil {
		return errNone()
	}
	if err := h.History.opts.Store.Purge(ctx, match); err != nil {
		return err
	}
	if q.Get("all") == "" {
		if err := h.traces(ctx, user.Name, q, match); err != nil {
			return err
		}
	}
	return out.write(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
}

// traces returns an error if the history has no object of that name: the user may have meant another namespace.
func (h *Handler) traces(ctx context.Context, user string, q url.Values, match func(key []byte) bool) error {
	p, release, err := h.History.open(ctx, user)
	if err != nil {
		return err
	}
	defer release()
	found, now := false, h.History.opts.Store.Revision()
	_, err = p.Writes(ctx, store.PastQuery{Match: match, To: now, Limit: 1}, func(store.PastWrite) error {
		found = true
		return nil
	})
	if err == nil && !found {
		err = p.State(ctx, now, match, func(store.Entry) error {
			found = true
			return nil
		})
	}
	if err == nil && !found {
		missing := apierrors.NewNotFound(schema.ParseGroupResource(q.Get("resource")), q.Get("name"))
		if ns := q.Get("namespace"); ns != "" {
			missing.ErrStatus.Message += fmt.Sprintf(" in namespace %q", ns)
		}
		missing.ErrStatus.Message += " of the history: nothing was purged"
		err = missing
	}
	return err
}

// purged returns the key of the object that is to be purged.
func (h *Handler) purged(q url.Values) (string, error) {
	s, err := h.scopeOf(q)
	if err != nil {
		return "", err
	}
	return s.kinds[0].Key(s.namespace, s.name), nil
}
