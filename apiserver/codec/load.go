package codec

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/typedjson"
	"github.com/sampan-io/sampan/store"
)

// A Loader decodes the records of a store when it is opened, and counts the records that cannot be
// served. A bad record is not an error: it must not keep the others from being served, and a
// program must start on a store that a newer one has written.
type Loader struct {
	kinds   map[string]*catalog.Kind // by the first segment of a key
	unknown map[string]int           // records, by the first segment of their keys
	bad     map[string]*badRecords   // by the same
}

// badRecords are records of one kind that cannot be read.
type badRecords struct {
	count int
	keys  []string // the first ones
	err   error    // of the first one
}

// NewLoader returns a loader for a store that keeps the kinds of c.
func NewLoader(c *catalog.Catalog) *Loader {
	l := &Loader{kinds: make(map[string]*catalog.Kind, len(c.Kinds())), unknown: map[string]int{}, bad: map[string]*badRecords{}}
	for _, k := range c.Snapshot().Hubs() {
		l.kinds[strings.TrimSuffix(k.Prefix(""), "/")] = k
	}
	return l
}

// Decode is the Decode function of a store. The value is an [*Item], with a [Item.Fault] if the data is bad. If the catalog
// does not have the kind, it is an item if the record can be of a custom resource, and otherwise a [*Raw].
func (l *Loader) Decode(key string, data []byte) (store.Value, error) {
	prefix, _, _ := strings.Cut(key, "/")
	kind := l.kinds[prefix]
	if kind == nil {
		l.unknown[prefix]++
		if !isUntyped(data) {
			return &Raw{data: data}, nil
		}
	}
	var item *Item
	err := run.Catch(func() (err error) {
		if kind == nil {
			item, err = loadUntyped(data)
			return err
		}
		item, err = LoadItem(kind, data)
		return err
	})
	if err != nil {
		l.note(prefix, key, err)
		return badItem(kind, key, data, err), nil
	}
	return item, nil
}

// Damaged returns the value of a record that cannot even be decrypted, and counts it. Like one that does not decode it can
// be deleted, and keeps no other from being served.
func (l *Loader) Damaged(key string, data []byte, err error) store.Value {
	prefix, _, _ := strings.Cut(key, "/")
	kind := l.kinds[prefix]
	if kind == nil {
		l.unknown[prefix]++
		return &Raw{data: data}
	}
	l.note(prefix, key, err)
	return badItem(kind, key, nil, err)
}

func (l *Loader) note(prefix, key string, err error) {
	const named = 10
	b := l.bad[prefix]
	if b == nil {
		b = &badRecords{err: err}
		l.bad[prefix] = b
	}
	if b.count++; len(b.keys) < named {
		b.keys = append(b.keys, key)
	}
}

// Report logs how many loaded records are not served, a line for each kind. Kinds that c has by now are served.
func (l *Loader) Report(ctx context.Context, c *catalog.Catalog, log *slog.Logger) {
	for _, k := range c.Snapshot().Hubs() {
		delete(l.unknown, strings.TrimSuffix(k.Prefix(""), "/"))
	}
	for _, prefix := range slices.Sorted(maps.Keys(l.unknown)) {
		log.WarnContext(ctx, "the store has records of a kind that this version does not serve; they are kept as they are",
			"kind", prefix, "records", l.unknown[prefix])
	}
	for _, prefix := range slices.Sorted(maps.Keys(l.bad)) {
		b := l.bad[prefix]
		log.ErrorContext(ctx, "the store has records that cannot be read; they are left out of lists and can be deleted",
			"kind", prefix, "records", b.count, "keys", b.keys, "err", b.err)
	}
}

// A Raw is a record of a kind that is not served: a [store.Value] that stays as it is.
type Raw struct{ data []byte }

// Bytes implements [store.Value].
func (r *Raw) Bytes() []byte { return r.data }

// Place implements [store.Value].
func (*Raw) Place(_, _ store.Revision) {}

// Fault returns why the record is not a readable object of the kind, or nil. An item with a
// fault has a stand-in as its object, with the name and namespace, and with the rest of the
// metadata if that can be read: enough to authorize and perform its deletion.
func (i *Item) Fault() error {
	if i.before != nil {
		return i.before.Fault()
	}
	return i.fault
}

// Unreadable returns the item of a record that cannot be read, for that reason: see [Item.Fault].
func Unreadable(kind *catalog.Kind, key string, err error) *Item { return badItem(kind, key, nil, err) }

// badItem returns the item of a record that cannot be read.
func badItem(kind *catalog.Kind, key string, data []byte, err error) *Item {
	if kind == nil || kind.Untyped() {
		var obj catalog.Object = standIn(key)
		if kind != nil {
			obj.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
		}
		i := &Item{fault: fmt.Errorf("record %q: %w", key, err), untyped: &untyped{text: data}}
		i.obj.Store(&obj)
		return i
	}
	obj := kind.New()
	obj.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
	if m, ok := obj.(metav1.ObjectMetaAccessor); ok {
		if meta, ok := m.GetObjectMeta().(*metav1.ObjectMeta); ok {
			*meta = readableMetadata(data)
		}
	}
	_, name, _ := strings.Cut(key, "/")
	if namespace, rest, found := strings.Cut(name, "/"); kind.Namespaced && found {
		obj.SetNamespace(namespace)
		name = rest
	}
	obj.SetName(name)
	i := &Item{kind: kind, fault: fmt.Errorf("record %q: %w", key, err)}
	i.obj.Store(&obj)
	return i
}

// readableMetadata returns the metadata of a stored object if it can be read, without the
// account of managers.
func readableMetadata(data []byte) (meta metav1.ObjectMeta) {
	body, err := openEnvelope(data)
	if err != nil {
		return metav1.ObjectMeta{}
	}
	part, _, err := splitBody(body)
	if err != nil || meta.Unmarshal(part) != nil {
		return metav1.ObjectMeta{}
	}
	meta.ManagedFields = nil
	if typedjson.Normalize(&meta) != nil {
		return metav1.ObjectMeta{}
	}
	return meta
}
