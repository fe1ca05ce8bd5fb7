package past

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/changes"
	"github.com/sampan-io/sampan/store"
)

// Parameter is the query parameter of GET requests that asks for an earlier state.
const Parameter = "at"

// Header is the header of an answer with an earlier state: its revision. A server that does not know the parameter
// answers with the present state and without it.
const Header = changes.AtHeader

// A Store keeps superseded writes. Package store has each method's contract.
type Store interface {
	Revision() store.Revision
	Past() (store.Past, error)
	Purge(ctx context.Context, match func(key []byte) bool) error
}

// Options configures a [History]. All are required.
type Options struct {
	Store Store

	// Decode returns a function that makes values of the store's data, like the Decode option of a store. The
	// function is used by one goroutine.
	Decode func() func(key string, data []byte) (store.Value, error)
}

// A History reads earlier states of objects. It is safe for concurrent use. A nil one has none.
type History struct {
	opts  Options
	seats *seats
}

// New returns the history of a store.
func New(opts Options) *History { return &History{opts, newSeats()} }

// mostState is how many bytes of saved objects the answer to a read of an earlier state is made of: they are in memory
// until the client has it.
const mostState = 64 << 20

// errNone is the answer when nothing is kept.
func errNone() error {
	return apierrors.NewBadRequest("the cluster keeps no history: start it with `sampan up --history=24h`, or longer")
}

// open returns the kept writes for a user, for the time until release is called.
func (h *History) open(ctx context.Context, user string) (p store.Past, release func(), err error) {
	if h == nil {
		return nil, nil, errNone()
	}
	if p, err = h.opts.Store.Past(); err != nil {
		return nil, nil, fault(err)
	}
	release, err = h.seats.take(ctx, user)
	return p, release, err
}

// fault turns an error of the store's history into an API status error.
func fault(err error) error {
	status := apierrors.APIStatus(nil)
	switch {
	case errors.As(err, &status):
		return err
	case errors.Is(err, store.ErrNoHistory):
		return errNone()
	case errors.Is(err, store.ErrExpired):
		return apierrors.NewResourceExpired(err.Error())
	case errors.Is(err, store.ErrStopped):
		return apierrors.NewServiceUnavailable("the server is shutting down")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return apierrors.NewTimeoutError("the request ended before the history was read", 0)
	}
	return apierrors.NewInternalError(err)
}

// moment returns the revision that a parameter names: a revision, a time in the form of RFC 3339, or a duration before
// now.
func (h *History) moment(ctx context.Context, p store.Past, parameter, text string, now time.Time) (store.Revision, error) {
	wrong := func(problem string) error {
		return apierrors.NewBadRequest(fmt.Sprintf("%s: %s, got %q", parameter, problem, text))
	}
	if r, err := strconv.ParseUint(text, 10, 64); err == nil {
		if newest := h.opts.Store.Revision(); store.Revision(r) > newest {
			return 0, wrong(fmt.Sprintf("must be a revision up to %d, the newest one", newest))
		}
		return store.Revision(r), nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		ago, err := time.ParseDuration(text)
		if err != nil || ago < 0 {
			return 0, wrong("must be a time such as 2006-01-02T15:04:05Z, a time before now such as 10m, or a revision")
		}
		at = now.Add(-ago)
	}
	if at.After(now) {
		return 0, wrong("must not be in the future")
	}
	r, err := p.RevisionAt(ctx, at)
	return r, err
}

// A State is the objects of a kind at a revision.
type State struct {
	Revision store.Revision
	Items    []*codec.Item // in the order of their keys; some may be unreadable, see [codec.Item.Fault]
}

// At returns the records of a kind at the moment that at names, for a user. Prefix is a key, or the beginning of keys
// up to a slash. Its error is an API status error. The user has a seat until ctx is over, which has to be the context
// of one request: the records are in memory until they are sent.
func (h *History) At(ctx context.Context, user string, kind *catalog.Kind, prefix, at string) (State, error) {
	p, release, err := h.open(ctx, user)
	if err != nil {
		return State{}, err
	}
	context.AfterFunc(ctx, release)
	out := State{}
	if out.Revision, err = h.moment(ctx, p, Parameter, at, time.Now()); err != nil {
		return State{}, fault(err)
	}
	d, size := decoder{h.opts.Decode()}, 0
	err = p.State(ctx, out.Revision, under(prefix), func(e store.Entry) error {
		if size += len(e.Data); size > mostState {
			return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%s: the objects have more than %d bytes: ask for one, or for those of a namespace", Parameter, mostState))
		}
		out.Items = append(out.Items, d.item(kind, e))
		return nil
	})
	if err != nil {
		return State{}, fault(err)
	}
	return out, nil
}

// under matches a key, or the keys with a prefix that ends with a slash.
func under(prefix string) func(key []byte) bool {
	if strings.HasSuffix(prefix, "/") {
		return func(key []byte) bool { return len(key) > len(prefix) && string(key[:len(prefix)]) == prefix }
	}
	return func(key []byte) bool { return string(key) == prefix }
}

// A decoder makes items of entries.
type decoder struct {
	decode func(key string, data []byte) (store.Value, error)
}

// item returns the item of an entry, which keeps nothing of it. If it cannot be read, the item has a fault.
func (d decoder) item(kind *catalog.Kind, e store.Entry) *codec.Item {
	item := d.placed(kind, e)
	item.Place(e.Created, e.Revision)
	return item
}

func (d decoder) placed(kind *catalog.Kind, e store.Entry) *codec.Item {
	if e.Data == nil {
		return codec.Unreadable(kind, e.Key, ErrPurged)
	}
	v, err := d.decode(e.Key, append([]byte(nil), e.Data...))
	if err != nil {
		return codec.Unreadable(kind, e.Key, err)
	}
	return codec.ItemOf(kind, e.Key, v)
}

// ErrPurged says that a value was purged.
var ErrPurged = errors.New("its value was purged from the history")
