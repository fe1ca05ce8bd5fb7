package snapshots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/kinds"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
	"github.com/sampan-io/sampan/store/encryption"
	"github.com/sampan-io/sampan/store/snapshot"
)

// raised is how far the revisions of a restored cluster are above those of its snapshot: more than any cluster has
// used since then, so that no client of the cluster sees a resource version for the second time with another object.
// It is the number that etcd's documentation recommends.
const raised = 1e9

// A Restoration describes the cluster that is made from a snapshot.
type Restoration struct {
	// Profile is the cluster. Its data directory must not exist, or be empty.
	Profile local.Profile

	// Settings returns the settled settings of an independent cluster. A cluster with the keys of the snapshot has the
	// settings of the snapshot.
	Settings func(Description) (local.Settings, error)

	// Independent asks for a cluster with new keys and a new ID even if the snapshot has keys. Without keys in the
	// snapshot every cluster is independent.
	Independent bool

	// Decryption is the path of the file with the keys that Secrets in the snapshot are encrypted with: encryption.yaml
	// of the original. It is not needed if the file was encrypted as a whole.
	Decryption string

	// FindKeys returns such a path for the cluster of that name, or "", if Decryption is empty. Nil means that there
	// is none.
	FindKeys func(cluster string) string

	Keys Keys // of the file
	Log  *slog.Logger
}

// A Result describes a restored cluster.
type Result struct {
	Description
	Same    bool // it has the keys and the ID of the original
	Records int  // that the cluster has
	Dropped int  // that are left out, by the rule of [Change.Apply]
	Pending int  // pods and claims that are as new

	DroppedOf map[string]int // the same as Dropped, by resource ("leases.coordination.k8s.io")
}

// Restore makes the data directory of a cluster from a snapshot, wholly or not at all: it appears when it is complete
// and on disk. It reads in once. After an error, and after a crash, there is nothing in its place; the remains of a
// crash beside it is removed by the next Restore.
func Restore(ctx context.Context, in io.Reader, o Restoration) (Result, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r, sealed, err := o.Keys.reader(in)
	if err != nil {
		return Result{}, err
	}
	d, err := describe(r.Info, sealed)
	if err != nil {
		return Result{}, err
	}
	target := o.Profile.DataDir
	if err := absent(target); err != nil {
		return Result{}, err
	}
	same, settings := d.Keys && !o.Independent, d.settings
	if !same {
		if settings, err = o.Settings(d); err != nil {
			return Result{}, err
		}
	}
	stage, release, err := o.Profile.Stage()
	if err != nil {
		return Result{}, err
	}
	defer release()
	p := o.Profile
	p.DataDir = stage
	w := &restorer{Restoration: o, same: same, stage: p, ctx: ctx, from: d, settings: settings, result: Result{Description: d, Same: same}}
	if err := w.run(r); err != nil {
		return Result{}, err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) { // it is empty
		return Result{}, err
	}
	if err := os.Rename(stage, target); err != nil {
		return Result{}, fmt.Errorf("making the data directory: %w", err)
	}
	return w.result, syncDir(filepath.Dir(target))
}

// absent returns an error if there is anything at the place of a data directory.
func absent(dir string) error {
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("%s is not empty; nothing was changed", dir)
	}
	return err
}

// syncDir makes names in a directory durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// A restorer makes one cluster.
type restorer struct {
	Restoration
	ctx      context.Context
	same     bool
	stage    local.Profile // with the data directory that is being filled
	from     Description
	settings local.Settings
	result   Result

	opener *encryption.Encryption // nil: Secrets in the snapshot are plain
	sealer *encryption.Encryption // nil until the keys are there
	change *Change                // nil: the same cluster
	kinds  map[string]*catalog.Kind
	loader *codec.Loader   // nil until the first record
	expire map[string]bool // resources whose objects may expire
	claims []store.Entry   // that wait for the volumes
	lost   map[string]bool // volumes that were dropped
	add    func(store.Entry) error
}

func (w *restorer) run(r *snapshot.Reader) error {
	if !w.same {
		if err := w.prepareChange(); err != nil {
			return err
		}
	}
	var read snapshot.Summary
	ceiling := r.Info.Revision
	if w.same {
		ceiling += raised
	}
	err := disk.Create(filepath.Join(w.stage.DataDir, "store"), ceiling, func(add func(store.Entry) error) (err error) {
		w.add = add
		if read, err = r.Read(snapshot.Sink{Record: w.record, File: w.file}); err != nil {
			return err
		}
		return w.flushClaims()
	})
	if err != nil {
		return err
	}
	w.result.Summary = read
	w.settings.LastPort = 0
	if !w.same {
		w.settings.DescendFrom(w.from.ClusterID, w.from.settings)
	}
	return w.stage.Keep(w.settings)
}

// prepareChange finds out how the cluster differs from that of the snapshot.
func (w *restorer) prepareChange() error {
	c := Change{Nodes: !w.from.settings.Simulated() || !w.settings.Simulated(), UID: uuid.NewUUID()}
	if from, to := w.from.settings.Services.All(), w.settings.Services.All(); w.from.settings.Services != w.settings.Services {
		if len(from) != len(to) {
			return fmt.Errorf("--service-network: must have the families of the snapshot's, %s, got %s", w.from.settings.Services, w.settings.Services)
		}
		for i := range from {
			if from[i].Addr().Is4() != to[i].Addr().Is4() || from[i].Bits() < to[i].Bits() {
				return fmt.Errorf("--service-network: must be as large as the snapshot's, %s, got %s", w.from.settings.Services, w.settings.Services)
			}
		}
		c.From, c.To = from, to
	}
	all, err := catalog.New(kinds.All())
	if err != nil {
		return err
	}
	w.kinds, w.lost = map[string]*catalog.Kind{}, map[string]bool{}
	for _, k := range all.Snapshot().Hubs() {
		w.kinds[strings.TrimSuffix(k.Prefix(""), "/")] = k
	}
	w.change = &c
	return nil
}

// openKeys reads the keys that Secrets in the snapshot are encrypted with.
func (w *restorer) openKeys(path string) (err error) {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("--decryption-keys: %w", err)
	}
	w.opener, err = encryption.New(encryption.Options{
		Keys: path, Former: true, Log: w.Log,
		Advice: fmt.Sprintf("Pass the file that has the key with --decryption-keys: pki/encryption.yaml or pki/encryption-former.yaml of cluster %s, or a copy from the time of the snapshot", w.from.Cluster),
	})
	if err != nil {
		return fmt.Errorf("--decryption-keys: %w", err)
	}
	return nil
}

// file writes a file with keys of the original.
func (w *restorer) file(name string, data []byte) error {
	if !w.same {
		return nil
	}
	if !keyFile(name) {
		return &snapshot.ForeignError{Reason: fmt.Sprintf("the snapshot has the file %q, which is not one with keys of a cluster", name)}
	}
	path := filepath.Join(w.stage.DataDir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// seal returns the encryption of the new cluster. The files with keys come before the records.
func (w *restorer) seal() (*encryption.Encryption, error) {
	if w.sealer != nil {
		return w.sealer, nil
	}
	path := w.stage.EncryptionKeys()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	e, err := encryption.New(encryption.Options{Keys: path, Log: w.Log})
	if err == nil {
		err = e.Use(w.ctx)
	}
	w.sealer = e
	return e, err
}

// record takes a record of the snapshot over.
func (w *restorer) record(e store.Entry) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	resource, _, _ := strings.Cut(e.Key, "/")
	interest := Keep
	if w.change != nil {
		interest = w.change.Interest(e.Key)
	}
	if interest == Drop {
		w.drop(resource)
		return nil
	}
	secret := w.from.Secrets == snapshot.Encrypted && sealed(e.Data)
	if secret || resource == "secrets" {
		if err := w.decrypt(&e, secret); err != nil {
			return err
		}
	}
	if err := w.check(resource, e); err != nil {
		return err
	}
	if interest == Decide {
		if resource == "persistentvolumeclaims" {
			e.Data = append([]byte(nil), e.Data...)
			w.claims = append(w.claims, e)
			return nil
		}
		keep, err := w.decide(resource, &e)
		if err != nil {
			return err
		}
		if !keep {
			w.drop(resource)
			return nil
		}
	}
	return w.put(e)
}

// drop counts a record that is left out.
func (w *restorer) drop(resource string) {
	if w.result.DroppedOf == nil {
		w.result.DroppedOf = map[string]int{}
	}
	w.result.DroppedOf[resource]++
	w.result.Dropped++
}

// sealed reports whether a value is encrypted.
func sealed(data []byte) bool { return strings.HasPrefix(string(data[:min(len(data), 8)]), "k8s:enc:") }

// decrypt replaces the value of a record by the plain one.
func (w *restorer) decrypt(e *store.Entry, encrypted bool) error {
	if !encrypted {
		return nil
	}
	path := w.Decryption
	if path == "" && w.same {
		path = w.stage.EncryptionKeys()
	}
	if path == "" && w.FindKeys != nil {
		path = w.FindKeys(w.from.Cluster)
	}
	if path == "" {
		return fmt.Errorf("%q is encrypted in the snapshot with the keys of cluster %s: pass its file pki/encryption.yaml with --decryption-keys, or save the snapshot with --passphrase-file or --key-file", e.Key, w.from.Cluster)
	}
	if w.opener == nil {
		if err := w.openKeys(path); err != nil {
			return err
		}
	}
	plain, err := w.opener.Open(e.Key, e.Data)
	if err != nil {
		return fmt.Errorf("record %q of the snapshot: %w", e.Key, err)
	}
	e.Data = plain
	return nil
}

// check returns an error for a record that no cluster saves: one that cannot be read, which snapshots leave out, or one
// that would be deleted by its age. Records of kinds that this program does not have are taken as they are.
func (w *restorer) check(resource string, e store.Entry) error {
	if w.loader == nil {
		all, err := catalog.New(kinds.All())
		if err != nil {
			return err
		}
		w.loader, w.expire = codec.NewLoader(all), map[string]bool{}
		for _, k := range all.Snapshot().Hubs() {
			w.expire[strings.TrimSuffix(k.Prefix(""), "/")] = k.Expires
		}
	}
	if e.Expires != 0 && !w.expire[resource] {
		return &snapshot.ForeignError{Reason: fmt.Sprintf("record %q of the snapshot expires, and only Events may", e.Key)}
	}
	_, err := decoded(w.loader.Decode, e.Key, e.Data)
	return err
}

// put adds a record to the store of the new cluster.
func (w *restorer) put(e store.Entry) error {
	s, err := w.seal()
	if err != nil {
		return err
	}
	if e.Data, err = s.Seal(e.Key, e.Data); err != nil {
		return err
	}
	w.result.Records++
	return w.add(e)
}

// decide applies the rule to an object.
func (w *restorer) decide(resource string, e *store.Entry) (keep bool, err error) {
	kind := w.kinds[resource]
	item, err := codec.LoadItem(kind, e.Data)
	if err != nil {
		return false, err
	}
	obj, err := item.Fresh()
	if err != nil {
		return false, err
	}
	phase := corev1.PodPhase("")
	if p, ok := obj.(*corev1.Pod); ok {
		phase = p.Status.Phase
	}
	if !w.change.Apply(obj) {
		if resource == "persistentvolumes" {
			w.lost[obj.GetName()] = true
		}
		return false, nil
	}
	e.Key = kind.Key(obj.GetNamespace(), obj.GetName()) // an IPAddress has another name
	if p, ok := obj.(*corev1.Pod); ok && p.Status.Phase == corev1.PodPending && phase != corev1.PodPending {
		w.result.Pending++
	}
	return true, encode(kind, obj, e)
}

// encode replaces the value of a record.
func encode(kind *catalog.Kind, obj catalog.Object, e *store.Entry) error {
	item, err := codec.NewItem(kind, obj)
	if err != nil {
		return err
	}
	e.Data = item.Bytes()
	return nil
}

// flushClaims takes over the claims, which come before the volumes in the snapshot.
func (w *restorer) flushClaims() error {
	kind := w.kinds["persistentvolumeclaims"]
	for _, e := range w.claims {
		if item, err := codec.LoadItem(kind, e.Data); err == nil {
			obj, err := item.Fresh()
			if err != nil {
				return err
			}
			if c := obj.(*corev1.PersistentVolumeClaim); w.lost[c.Spec.VolumeName] {
				Unbind(c)
				w.result.Pending++
				if err := encode(kind, c, &e); err != nil {
					return err
				}
			}
		}
		if err := w.put(e); err != nil {
			return err
		}
	}
	return nil
}

// Plain copies a snapshot with Secrets that are not encrypted, as a running cluster takes it. The copy is for a
// connection, not for a file.
func Plain(ctx context.Context, out io.Writer, in io.Reader, o Restoration) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r, isSealed, err := o.Keys.reader(in)
	if err != nil {
		return err
	}
	from, err := describe(r.Info, isSealed)
	if err != nil {
		return err
	}
	info := r.Info
	info.Secrets, info.Keys = snapshot.Plain, false
	to, err := snapshot.NewWriter(out, info)
	if err != nil {
		return err
	}
	w := &restorer{Restoration: o, ctx: ctx, from: from}
	sum, err := r.Read(snapshot.Sink{Record: func(e store.Entry) error {
		if from.Secrets == snapshot.Encrypted && sealed(e.Data) {
			if err := w.decrypt(&e, true); err != nil {
				return err
			}
		}
		return to.Add(e)
	}})
	if err == nil {
		_, err = to.Close(sum.Unreadable)
	}
	return err
}
