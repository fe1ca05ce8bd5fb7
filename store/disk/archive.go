package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/wholefile"
)

// # How history is kept
//
// A fold replaces a snapshot and the segments after it. With history these files are not removed but moved into the
// directory "history" below the store's, under their names. Nothing is copied, and the way of a write is the same,
// except that its batch has a stamp (stamp.go). A snapshot with the segments up to the next snapshot is a generation:
//
//	history/00000012.snapshot    the state after segment 12
//	history/00000013.log         the writes after it
//	history/00000014.log
//	history/00000014.snapshot    the next generation
//	history/00000015.log
//	00000015.snapshot            the files that the store loads
//	00000016.log
//
// So the state at any revision is a snapshot and a part of the segments after it, see past.go. A crash between the
// rename of a new snapshot and the moves leaves old files where they were; the next start moves them. Generations go as
// a whole, oldest first: at a start and after a fold those whose last write is older than History.Keep, and those
// beyond History.Max; and one after the other when the disk is full, because history is worth less than writes. After
// a fold that a purge or a change of keys asked for, a goroutine of its own writes the files of the history again.

// History says which superseded writes are kept.
type History struct {
	Keep time.Duration // for how long, at least; 0 means that none are
	Max  int64         // bytes of files that are kept at most, beside the files that the store loads; 0 means any number
}

func (h History) keeps() bool { return h.Keep > 0 }

// historyDir is the directory of superseded files in that of the store.
const historyDir = "history"

// An archive keeps superseded files. It is safe for concurrent use.
type archive struct {
	store string // directory
	dir   string
	keep  History
	log   *slog.Logger

	files sync.RWMutex // held for writing while files are moved or removed, and for reading while they are opened

	mu      sync.Mutex
	segment uint64 // guarded by mu; the newest one
	end     int64  // guarded by mu; where its last acknowledged frame ends
}

func newArchive(dir string, opts Options) *archive {
	return &archive{store: dir, dir: filepath.Join(dir, historyDir), keep: opts.History, log: opts.Log}
}

// reached records where the log ends.
func (a *archive) reached(segment uint64, end int64) {
	a.mu.Lock()
	a.segment, a.end = segment, end
	a.mu.Unlock()
}

// reachedTo returns where the log ends.
func (a *archive) reachedTo() (segment uint64, end int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.segment, a.end
}

// begin is called at the start. Without history it removes the one of earlier starts.
func (a *archive) begin() {
	a.files.Lock()
	defer a.files.Unlock()
	if !a.keep.keeps() {
		if err := os.RemoveAll(a.dir); err != nil {
			a.log.Warn("cannot remove the history of the store", "err", err)
		}
		return
	}
	if info, err := os.Lstat(a.dir); err == nil && info.IsDir() {
		names, _ := os.ReadDir(a.dir) // trim logs an error
		for _, n := range names {
			if wholefile.Incomplete(n.Name()) {
				a.remove(filepath.Join(a.dir, n.Name()))
			}
		}
	}
	a.trim(time.Now())
}

// retire takes files that the store does not need any more. Without history it removes them. If that is not possible,
// the next start retires them.
func (a *archive) retire(old []entry) {
	a.files.Lock()
	defer a.files.Unlock()
	keep := a.keep.keeps()
	if len(old) > 0 && keep {
		if err := a.makeDir(); err != nil {
			a.log.Warn("cannot use the directory of the history: superseded records are not kept", "err", err)
			keep = false
		}
	}
	for _, e := range old {
		if keep {
			err := os.Rename(e.name, filepath.Join(a.dir, filepath.Base(e.name)))
			if err == nil {
				continue
			}
			a.log.Warn("cannot keep a file of the history", "err", err)
		}
		// The file is ignored as long as it is there, and some file systems cannot remove one when they are full.
		a.remove(e.name)
	}
	if a.keep.keeps() {
		a.trim(time.Now())
	}
}

// makeDir makes the directory of the history, if it is not there.
func (a *archive) makeDir() error {
	if err := os.Mkdir(a.dir, 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	_, err := a.entries()
	return err
}

func (a *archive) remove(name string) {
	if err := os.Remove(name); err != nil {
		a.log.Warn("cannot remove an obsolete file", "err", err)
	}
}

// A generation is the files of one snapshot and the segments after it, as names in the directory of the history.
type generation struct {
	names []string // in order
	size  int64
	last  time.Time // when it was written to last, by the file system
}

// entries returns the directory of the history, sorted by name: only what has the name of a file of a store. There are
// none before the first fold. The caller holds files.
func (a *archive) entries() ([]fs.DirEntry, error) {
	info, err := os.Lstat(a.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.IsDir(): // neither is a link to one: its files may be those of another program
		return nil, fmt.Errorf("%s, which is for the history of the store, is not a directory: remove it", a.dir)
	}
	all, err := os.ReadDir(a.dir)
	return slices.DeleteFunc(all, func(e fs.DirEntry) bool { return !isStoreFile(e.Name()) }), err
}

// generations returns the kept files, oldest first. Only regular files count. The caller holds files.
func (a *archive) generations() ([]generation, error) {
	all, err := a.entries() // by name: segment 14 stands before the snapshot that it is in
	if err != nil {
		return nil, err
	}
	var out []generation
	for _, e := range all {
		name := e.Name()
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if len(out) == 0 || strings.HasSuffix(name, ".snapshot") {
			out = append(out, generation{})
		}
		g := &out[len(out)-1]
		g.names, g.size = append(g.names, name), g.size+info.Size()
		if t := info.ModTime(); strings.HasSuffix(name, ".log") && t.After(g.last) {
			g.last = t
		}
	}
	return out, nil
}

// isStoreFile reports whether a name is one that fileName returns.
func isStoreFile(name string) bool {
	text, extension, _ := strings.Cut(name, ".")
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return false
	}
	return extension == "log" && name == fileName(kindLog, number) ||
		extension == "snapshot" && name == fileName(kindSnapshot, number)
}

// trim removes the generations that are too old, or too many. The caller holds files for writing.
func (a *archive) trim(now time.Time) {
	all, err := a.generations()
	if err != nil {
		a.log.Warn("cannot look for history that is too old", "err", err)
		return
	}
	size := int64(0)
	for _, g := range all {
		size += g.size
	}
	for _, g := range all {
		if now.Sub(g.last) <= a.keep.Keep && (a.keep.Max == 0 || size <= a.keep.Max) && !a.spaceLow() {
			return
		}
		a.drop(g)
		size -= g.size
	}
}

// spaceLow reports whether the file system has so little space left that history goes.
func (a *archive) spaceLow() bool {
	total, free, err := freeSpace(a.store)
	return err == nil && free < lowSpace(total)
}

// drop removes a generation. The caller holds files for writing.
func (a *archive) drop(g generation) {
	for _, name := range g.names {
		a.remove(filepath.Join(a.dir, name))
	}
}

// dropOldest removes the oldest generation, for the space, and reports whether there was one.
func (a *archive) dropOldest() bool {
	a.files.Lock()
	defer a.files.Unlock()
	all, err := a.generations()
	if err != nil || len(all) == 0 {
		return false // trim logs the error
	}
	a.drop(all[0])
	left, err := a.generations()
	if err != nil || len(left) >= len(all) {
		return false // the file system cannot remove files
	}
	a.log.Warn("removed the oldest part of the history, because there is no space left", "generations", len(left))
	return true
}

// purges are the requests to remove values from the history that wait for the fold that is under way or comes next.
type purges struct {
	mu   sync.Mutex
	list purgeList // guarded by mu
}

type purging struct {
	match func(key []byte) bool
	done  func(error)
}

type purgeList []purging

// take returns the requests and forgets them.
func (p *purges) take() purgeList {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.list
	p.list = nil
	return list
}

// end ends all requests with a result.
func (l purgeList) end(err error) {
	for _, p := range l {
		p.done(err)
	}
}

// match reports whether a request is for a key.
func (l purgeList) match(key []byte) bool {
	return slices.ContainsFunc(l, func(p purging) bool { return p.match(key) })
}

// Purge implements [store.Historian]. A fold moves all superseded values into the history, from where they are removed
// afterwards. It blocks until a fold that is under way has ended, but not for changes of the history.
func (d *directory) Purge(ctx context.Context, match func(key []byte) bool, done func(error)) error {
	if d.broken != nil {
		return d.broken
	}
	if d.folding != nil {
		d.folding.Wait() // it may have passed values that have to be removed
	}
	if !d.seal(ctx) && len(d.sealed) == 0 {
		if d.broken == nil {
			done(errors.New("cannot begin a new segment of the log; the log of the server says why"))
		}
		return d.broken
	}
	d.purging.mu.Lock()
	d.purging.list = append(d.purging.list, purging{match, done})
	d.purging.mu.Unlock()
	d.startFold(ctx)
	return nil
}

// historyChanges are the changes of the history that wait, in the order of their folds. One goroutine makes them, so
// that no two write the same file, and neither a fold nor a write waits for it.
type historyChanges struct {
	group *run.Group // nil before the first fold

	mu      sync.Mutex
	list    []historyChange // guarded by mu
	running bool            // guarded by mu; a goroutine takes them from the list
}

// A historyChange is made after the fold that moved all files that it concerns into the history.
type historyChange struct {
	reseal bool
	purges purgeList
}

// rewriteHistory makes a change, in a goroutine of its own. It is called by the goroutine of a fold.
func (d *directory) rewriteHistory(c historyChange) {
	d.changes.mu.Lock()
	defer d.changes.mu.Unlock()
	d.changes.list = append(d.changes.list, c)
	if d.changes.running {
		return
	}
	d.changes.running = true
	d.changes.group.Go(func(ctx context.Context) {
		for list := d.nextChanges(); len(list) > 0; list = d.nextChanges() {
			d.changeHistory(ctx, list)
		}
	})
}

// nextChanges returns the changes that wait. If there are none, the goroutine that makes them has to end.
func (d *directory) nextChanges() []historyChange {
	d.changes.mu.Lock()
	defer d.changes.mu.Unlock()
	list := d.changes.list
	d.changes.list, d.changes.running = nil, len(list) > 0
	return list
}

// changeHistory makes changes: all purges with one pass through the files.
func (d *directory) changeHistory(ctx context.Context, list []historyChange) {
	var purges purgeList
	for _, c := range list {
		purges = append(purges, c.purges...)
		if c.reseal {
			d.rewritten(d.archive.reseal(ctx, d.opts.Reseal))
		}
	}
	if len(purges) > 0 {
		purges.end(d.archive.purge(ctx, purges.match))
	}
}

// rewritten reports the end of what Rewrite began.
func (d *directory) rewritten(err error) {
	if d.opts.Rewritten != nil {
		d.opts.Rewritten(err)
	}
}

// purge removes the values of the keys for which match returns true from the history.
func (a *archive) purge(ctx context.Context, match func(key []byte) bool) error {
	return a.rewrite(ctx, func(r *raw) ([]byte, bool) { return nil, r.data != nil && match(r.key) })
}

// reseal writes the values of the history as a fold writes those of the store.
func (a *archive) reseal(ctx context.Context, reseal func(key string, data []byte) []byte) error {
	return a.rewrite(ctx, func(r *raw) ([]byte, bool) {
		if r.data == nil {
			return nil, false
		}
		data := reseal(string(r.key), r.data)
		return data, len(data) != len(r.data) || len(data) > 0 && &data[0] != &r.data[0]
	})
}
