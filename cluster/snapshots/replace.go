package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/kinds"
	"github.com/sampan-io/sampan/internal/removal"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
	"github.com/sampan-io/sampan/store/encryption"
	"github.com/sampan-io/sampan/store/snapshot"
)

// Names in the data directory: of the store that is being made, and of the one that was replaced last.
const (
	madeStore     = "store.restoring"
	ReplacedStore = "store.replaced"
)

// Replace puts a stopped cluster back to a snapshot of itself. It keeps its keys, settings and files; its store is
// replaced at once or not at all, and the replaced one is kept in the data directory, as ReplacedStore, in place of
// an earlier one. All revisions are above the ones that were used.
func Replace(ctx context.Context, in io.Reader, o Restoration) (Result, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r, isSealed, err := o.Keys.reader(in)
	if err != nil {
		return Result{}, err
	}
	d, err := describe(r.Info, isSealed)
	if err != nil {
		return Result{}, err
	}
	release, err := o.Profile.KeepStopped(ctx)
	if err != nil {
		return Result{}, err
	}
	defer release()
	id, last, err := survey(ctx, o)
	if err != nil {
		return Result{}, err
	}
	if id != d.ClusterID || id == "" {
		return Result{}, fmt.Errorf("the snapshot is of another cluster, %s (ID %s), than the one in %s (ID %s): remove that one with `sampan down --purge%s`, or restore under another --name; nothing was changed",
			d.Cluster, d.ClusterID, o.Profile.DataDir, id, o.Profile.NameFlag())
	}
	made := filepath.Join(o.Profile.DataDir, madeStore)
	if err := removal.Tree(made); err != nil { // left by a crash
		return Result{}, err
	}
	defer func() { _ = removal.Tree(made) }()
	w := &restorer{Restoration: o, same: true, stage: o.Profile, ctx: ctx, from: d, result: Result{Description: d, Same: true}}
	err = disk.Create(made, max(last, r.Info.Revision)+raised, func(add func(store.Entry) error) (err error) {
		w.add = add
		w.result.Summary, err = r.Read(snapshot.Sink{Record: w.record})
		return err
	})
	if err != nil {
		return Result{}, err
	}
	if err := exchange(made, filepath.Join(o.Profile.DataDir, "store")); err != nil {
		return Result{}, fmt.Errorf("replacing the store: %w", err)
	}
	replaced := filepath.Join(o.Profile.DataDir, ReplacedStore)
	err = removal.Tree(replaced)
	if err == nil {
		err = os.Rename(made, replaced)
	}
	return w.result, errors.Join(err, syncDir(o.Profile.DataDir))
}

// survey returns the ID and the newest revision of a stopped cluster.
func survey(ctx context.Context, o Restoration) (id string, last store.Revision, err error) {
	all, err := catalog.New(kinds.All())
	if err != nil {
		return "", 0, err
	}
	var namespaces *catalog.Kind
	for _, k := range all.Snapshot().Hubs() {
		if k.Prefix("") == "namespaces/" {
			namespaces = k
		}
	}
	keys, err := encryption.New(encryption.Options{Keys: o.Profile.EncryptionKeys(), Log: o.Log})
	if err != nil {
		return "", 0, err
	}
	history, err := o.Profile.History()
	if err != nil {
		return "", 0, err
	}
	b, err := disk.Open(filepath.Join(o.Profile.DataDir, "store"), disk.Options{
		Log: o.Log, History: disk.History{Keep: history.Window(), Max: history.Bytes()},
	})
	if err != nil {
		return "", 0, err
	}
	last, err = b.Load(ctx, func(e store.Entry) error {
		if e.Key != kubeSystem {
			return nil
		}
		data, err := keys.Open(e.Key, e.Data)
		if err != nil {
			return err
		}
		item, err := codec.LoadItem(namespaces, data)
		if err == nil {
			id = string(item.Object().GetUID())
		}
		return err
	})
	return id, last, errors.Join(err, b.Close())
}
