package operation

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	listvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

func (t *Target) readFault(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return t.notFound()
	}
	return StoreFault(err)
}

// Get returns an object, or the view of it that a subresource is.
func (o *Operations) Get(ctx context.Context, t Target, opts metav1.GetOptions) (Result, error) {
	if err := o.Allow(ctx, &t, VerbGet, nil, t.Name); err != nil {
		return Result{}, err
	}
	if err := o.Since(ctx, opts.ResourceVersion); err != nil {
		return Result{}, err
	}
	if t.At != "" {
		item, at, err := o.lookupAt(ctx, &t)
		if err != nil {
			return Result{}, err
		}
		r, err := t.shown(item)
		r.At = at
		return r, err
	}
	if t.Kind.Computed != nil {
		return o.computeOne(ctx, &t)
	}
	if o.turns.any() && o.turns.contended(t.Key()) {
		if err := o.store.Settled(ctx, t.Key()); err != nil {
			return Result{}, StoreFault(err)
		}
	}
	if t.Kind.Untyped() && t.Sub == nil { // the answer converts it, once
		item, err := o.lookupRecord(ctx, &t)
		if err == nil && item.Fault() != nil {
			err = t.unreadable(item.Fault())
		}
		return Result{Item: item}, err
	}
	item, err := o.Lookup(ctx, &t)
	if err != nil {
		return Result{}, err
	}
	return t.shown(item)
}

// shown returns an object, or the view of it that the subresource is.
func (t *Target) shown(item *codec.Item) (Result, error) {
	if v, ok := t.view(); ok {
		if v.Absent != nil {
			if err := v.Absent(item.Object()); err != nil {
				return Result{}, err
			}
		}
		return Result{Made: show(v, item.Object())}, nil
	}
	return Result{Item: item}, nil
}

// show returns an object in the kind of a view.
func show(v catalog.View, parent catalog.Object) runtime.Object {
	obj := v.Get(parent)
	obj.GetObjectKind().SetGroupVersionKind(v.Kind)
	return obj
}

// A Listing is a list, or a page of one.
type Listing struct {
	Items []*codec.Item
	Meta  metav1.ListMeta

	unreadable []*codec.Item // records that would be in the list or the page if they could be read
	warned     []string      // during the deletion of the items; each once
}

// mostWarned is how many warnings of a deletion of many objects are kept. An answer has no room for more that are
// longer than 16 characters.
const mostWarned = 256

func (l *Listing) warn(warnings []string) {
	for _, w := range warnings {
		if len(l.warned) < mostWarned && !slices.Contains(l.warned, w) {
			l.warned = append(l.warned, w)
		}
	}
}

// List returns the objects that the options choose, in the order of their names.
func (o *Operations) List(ctx context.Context, t Target, opts metav1.ListOptions) (Listing, error) {
	c, err := Select(o.source(&t), t.Namespace, opts.LabelSelector, opts.FieldSelector)
	if err != nil {
		return Listing{}, err
	}
	if err := o.Allow(ctx, &t, VerbList, c.Where, c.Name); err != nil {
		return Listing{}, err
	}
	if t.At != "" {
		return o.listOfPast(ctx, &t, &c, opts)
	}
	l, err := o.listChosen(ctx, &c, opts)
	if err == nil && t.Kind.Computed != nil {
		return o.computeList(ctx, &t, &c, l)
	}
	if err == nil && t.Kind.Untyped() {
		l.Items, err = codec.Shown(ctx, t.Kind, l.Items)
	}
	return l, err
}

// itemsBetweenLooks is after how many objects a request looks whether its client is still there: some tens of microseconds.
const itemsBetweenLooks = 64

func (o *Operations) listChosen(ctx context.Context, c *Selection, opts metav1.ListOptions) (Listing, error) {
	if err := checkListOptions(opts, false); err != nil {
		return Listing{}, err
	}
	page, err := o.startOf(ctx, opts)
	if err != nil {
		return Listing{}, err
	}
	var out Listing
	limit := int(max(opts.Limit, 0))
	page.Limit = limit
	for {
		got, err := o.store.List(c.Query, page)
		switch {
		case errors.Is(err, store.ErrExpired) && opts.Continue != "":
			return Listing{}, expiredContinue(page.After)
		case err != nil:
			return Listing{}, StoreFault(err)
		}
		// The pages, and the parts of a page, come from one revision (I4).
		page.At = got.Revision
		out.Meta.ResourceVersion = strconv.FormatUint(uint64(got.Revision), 10)
		if out.Items == nil {
			out.Items = make([]*codec.Item, 0, len(got.Records))
		}
		items := make([]*codec.Item, len(got.Records))
		for n, rec := range got.Records {
			items[n] = codec.ItemOf(c.kind, rec.Key, rec.Value)
		}
		if items, err = c.readied(ctx, items); err != nil {
			return Listing{}, err
		}
		for n, rec := range got.Records {
			if n%itemsBetweenLooks == 0 && ctx.Err() != nil {
				return Listing{}, context.Cause(ctx)
			}
			page.After = rec.Key
			item := items[n]
			switch {
			case item.Fault() != nil:
				out.unreadable = append(out.unreadable, item)
			case c.Everything() || c.Matches(item):
				out.Items = append(out.Items, item)
			}
			if more := got.More || n+1 < len(got.Records); more && limit > 0 && len(out.Items) == limit {
				out.Meta.Continue = continueToken(got.Revision, rec.Key)
				if c.Everything() {
					left := int64(got.Left)
					out.Meta.RemainingItemCount = &left
				}
				return out, nil
			}
		}
		if !got.More || len(got.Records) == 0 {
			return out, nil
		}
		// A selector left out some of this part: look further, in larger steps,
		// for the rest of the page.
		page.Limit = min(max(2*page.Limit, 100), 10_000)
	}
}

// checkListOptions checks the rules of Kubernetes for lists and watches. A watch that starts with the state stands for one that asks for
// it.
func checkListOptions(opts metav1.ListOptions, watch bool) error {
	if watch && opts.SendInitialEvents == nil && opts.ResourceVersionMatch == "" && (opts.ResourceVersion == "" || opts.ResourceVersion == "0") {
		state := true
		opts.SendInitialEvents, opts.ResourceVersionMatch = &state, metav1.ResourceVersionMatchNotOlderThan
	}
	return checkOptions("ListOptions", listvalidation.ValidateListOptions(&internalversion.ListOptions{
		Watch: watch, ResourceVersion: opts.ResourceVersion, ResourceVersionMatch: opts.ResourceVersionMatch,
		Continue: opts.Continue, Limit: opts.Limit, SendInitialEvents: opts.SendInitialEvents,
	}, true))
}

// startOf says where a list begins and of which revision it is.
//
//	continue           the revision in the token
//	""                 the newest of all servers
//	"0"                the newest that this server has
//	N, Exact           N
//	N, NotOlderThan    the newest, which must not be older than N
//	N                  with a limit N, otherwise as NotOlderThan
func (o *Operations) startOf(ctx context.Context, opts metav1.ListOptions) (store.Page, error) {
	if opts.Continue != "" {
		if opts.ResourceVersion != "" && opts.ResourceVersion != "0" {
			return store.Page{}, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		page, err := parseContinue(opts.Continue)
		if err == nil && page.At == 0 {
			err = o.current(ctx)
		}
		return page, err
	}
	rev, err := parseRevision(opts.ResourceVersion)
	if err != nil {
		return store.Page{}, err
	}
	if rev > 0 && (opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact || opts.ResourceVersionMatch == "" && opts.Limit > 0) {
		return store.Page{At: rev}, nil
	}
	return store.Page{}, o.Since(ctx, opts.ResourceVersion)
}

// A continuation is the contents of a continue token. Clients must not look into it; it
// grants nothing, because the request that brings it is authorized as any other.
type continuation struct {
	Format   string `json:"v"`
	Revision int64  `json:"rv"` // -1: the newest, whatever was listed before
	After    string `json:"start"`
}

const continueFormat = "meta.k8s.io/v1"

func continueToken(rev store.Revision, after string) string { return encodeContinue(int64(rev), after) }

func encodeContinue(rev int64, after string) string {
	b, err := json.Marshal(continuation{continueFormat, rev, after})
	if err != nil {
		panic(err) // a string and a number always have a JSON form
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseContinue(token string) (store.Page, error) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	var c continuation
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	switch {
	case err != nil:
	case c.Format != continueFormat:
		err = fmt.Errorf("unknown format %q", c.Format)
	case c.After == "":
		err = errors.New("it has no start key")
	case c.Revision == -1:
		return store.Page{After: c.After}, nil
	case c.Revision <= 0:
		err = fmt.Errorf("revision %d", c.Revision)
	default:
		return store.Page{After: c.After, At: store.Revision(c.Revision)}, nil
	}
	return store.Page{}, apierrors.NewBadRequest(fmt.Sprintf("continue key is not valid: %v", err))
}

// expiredContinue is the answer to a token whose revision is forgotten. It has a
// token that goes on in the present.
func expiredContinue(after string) error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
		"You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. " +
		"Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.")
	err.ErrStatus.Continue = encodeContinue(-1, after)
	return err
}
