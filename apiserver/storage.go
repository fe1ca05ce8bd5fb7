package apiserver

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// A Loader has the Decode function of a store of this server's objects, and reports which
// records the server will not serve.
type Loader interface {
	Decode(key string, data []byte) (store.Value, error)
	Damaged(key string, data []byte, err error) store.Value
	Report(ctx context.Context, c *catalog.Catalog, log *slog.Logger)
}

// NewLoader returns a loader, for one store that is opened once.
func NewLoader(c *catalog.Catalog) Loader { return codec.NewLoader(c) }

// Terms returns the Terms option of a store of this server's objects:
// labels and the indexed fields of each kind.
func Terms(*catalog.Catalog) func(key string, v store.Value) []string { return codec.Terms }

// Claims returns the Claims option of a store of this server's objects: cluster IPs, node ports, and whatever else
// belongs to one object alone.
func Claims(*catalog.Catalog) func(key string, v store.Value) []string { return codec.Claims }

// TTL returns the TTL option of a store of this server's objects, if Events are
// kept for so long after their last write.
func TTL(c *catalog.Catalog, events time.Duration) func(key string) time.Duration {
	expires := map[string]bool{}
	for _, k := range c.Kinds() {
		if k.Expires {
			expires[k.Prefix("")] = true
		}
	}
	return func(key string) time.Duration {
		if i := strings.IndexByte(key, '/'); i >= 0 && expires[key[:i+1]] {
			return events
		}
		return 0
	}
}

// Restate is the Restate option of a store of this server's objects.
func Restate(v store.Value) store.Value {
	if i, ok := v.(*codec.Item); ok {
		return i.Restate()
	}
	return v
}

// Release lets go of the encodings of stored objects that are kept for readers to come, before a
// collection of garbage in a process that has become idle.
func Release(c *catalog.Catalog, st operation.Store) {
	for _, k := range c.Snapshot().Hubs() {
		if k.Answered() {
			continue // no objects of its own are stored
		}
		state, err := st.List(store.Query{Prefix: k.Prefix("")}, store.Page{})
		if err != nil {
			continue // the store has ended
		}
		for _, rec := range state.Records {
			codec.ItemOf(k, rec.Key, rec.Value).Release()
		}
	}
}
