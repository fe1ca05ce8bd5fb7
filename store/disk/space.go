package disk

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/store"
)

// # What is kept back for a full disk
//
// Deletions need space too: each is a frame in the log, and the log becomes shorter only by a
// fold, which writes a new snapshot before the old files go. On a disk without any space
// neither is possible, so three pieces of space are taken while there is some:
//
//   - slack: zeros at the end of the newest segment. A batch that does not free space must leave
//     them there.
//   - the file "spare": the next segment, of the same length, so that a fold can begin.
//   - the file "reserve": space for a snapshot of everything that is live. The fold writes its
//     snapshot into this file and renames it, so that no other program can take the space in
//     between. A batch that does not free space must leave it large enough for all records
//     afterwards, and the slack on top, so that updates that belong to deletions may grow a bit.
//
// When a batch finds no space, the log is folded if much of it is garbage, and the batch is
// tried again. When a batch that frees space has used up the slack, that fold goes into the
// spare segment and the reserve. So deletions succeed for as long as they are smaller than the
// slack, and the space of the deleted records comes back with the next batch that needs it.
//
// All this is best effort where the file system cannot allocate space (fallocate(2)).

// space keeps space back, and looks how much is left. Except for checkFree and lookSometimes it
// belongs to the fold while one is under way.
type space struct {
	dir   string
	slack int64
	held  int64 // size of the reserve
	none  bool  // the file system cannot keep space back

	log    *slog.Logger
	notify func(store.Notice)
	looked time.Time
	low    bool
}

const (
	reserveFile = "reserve"
	spareFile   = "spare"

	minSlack = 128 << 10 // hundreds of deletions
	maxSlack = 1 << 20
)

func newSpace(dir string, opts Options) *space {
	s := &space{dir: dir, slack: minSlack, log: opts.Log, notify: opts.Notify}
	if total, _, err := freeSpace(dir); err == nil {
		s.slack = min(max(total/64, minSlack), maxSlack)
	}
	// Logs that are folded early, in tests, keep back less.
	s.slack = min(s.slack, max(opts.Segment/4, 4<<10))
	if info, err := os.Stat(s.path(reserveFile)); err == nil {
		s.held = info.Size()
	}
	return s
}

func (s *space) path(name string) string { return filepath.Join(s.dir, name) }

// snapshotSize returns an upper bound of the size of a snapshot of entries that have that
// size together.
func snapshotSize(live int64) int64 {
	const frames = 512 // in 64 KiB that is more than the head of a frame takes
	return live + live/frames + 16<<10
}

// holdReserve makes sure that the reserve has a size. ErrFull means that there is no space for that.
func (s *space) holdReserve(want int64) error {
	if s.none || want <= s.held {
		return nil
	}
	f, err := os.OpenFile(s.path(reserveFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return s.refused(err)
	}
	defer f.Close()
	to := want
	if _, free, err := freeSpace(s.dir); err == nil {
		to += min(max(want/8, 256<<10), free/8) // so that this is seldom
	}
	if err = allocate(f, 0, to); full(err) {
		to = want
		err = allocate(f, 0, to)
	}
	if err != nil {
		return s.refused(err)
	}
	s.held = to
	return nil
}

// refused returns the error of the write that wanted the reserve to grow. Only a
// full disk fails the write.
func (s *space) refused(err error) error {
	if full(err) {
		return fmt.Errorf("keeping space for deletions in %s: %w", s.path(reserveFile), store.ErrFull)
	}
	s.none = true
	s.log.Warn("the file system cannot keep space back: when it is full, deletions may fail as well", "err", err)
	return nil
}

// keep takes the space that is to be kept back, as far as there is any.
func (s *space) keep(live int64) {
	want := snapshotSize(live) + s.slack
	s.trim(2*want + 1<<20)
	if err := s.makeSpare(); err != nil {
		s.log.Debug("there is no spare segment", "err", err)
	}
	if err := s.holdReserve(want); err != nil {
		s.log.Debug("cannot reserve all of the space for deletions", "err", err)
	}
}

// trim makes the reserve no larger than that.
func (s *space) trim(most int64) {
	if s.held > most && os.Truncate(s.path(reserveFile), most) == nil {
		s.held = most
	}
}

// makeSpare makes the spare segment, if it is not there.
func (s *space) makeSpare() error {
	if info, err := os.Stat(s.path(spareFile)); err == nil && info.Size() >= s.slack {
		return nil
	}
	f, err := os.OpenFile(s.path(spareFile+".tmp"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = zero(f, 0, s.slack)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), s.path(spareFile))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it is of no use
	}
	return err
}

// takeSpare returns the next segment, with its header, under a name that only publish makes
// final, and its size.
func (s *space) takeSpare(h header) (*os.File, int64, error) {
	f, err := os.OpenFile(s.path(spareFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, err
	}
	size := int64(0)
	info, err := f.Stat()
	if err == nil {
		_, err = f.WriteAt(h.encode(), 0)
		size = max(info.Size(), headerSize)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

// takeReserve returns the file into which a snapshot is written, with its header. It becomes
// the snapshot by publish.
func (s *space) takeReserve(h header) (*os.File, error) {
	f, err := os.OpenFile(s.path(reserveFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(h.encode()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// reserveUsed records that the reserve has become a snapshot, or, if that failed, that it is
// still there.
func (s *space) reserveUsed() {
	s.held = 0
	if info, err := os.Stat(s.path(reserveFile)); err == nil {
		s.held = info.Size()
	}
}

// lookInterval bounds how often a store that is written to looks how much space is left.
const lookInterval = 10 * time.Second

// lookSometimes is checkFree, unless it was called a moment ago.
func (s *space) lookSometimes() {
	if time.Since(s.looked) >= lookInterval {
		s.checkFree()
	}
}

// Low is when less than a tenth of the file system is free, as kubelet has it for
// nodefs.available, and less than lowBytes. It ends when a quarter more than that is free.
const (
	lowFraction = 10
	lowBytes    = 1 << 30
)

// lowSpace returns below how much free space a file system of that size has little left.
func lowSpace(total int64) int64 { return min(total/lowFraction, lowBytes) }

// checkFree notifies when little space is left, and when that is over.
func (s *space) checkFree() {
	s.looked = time.Now()
	total, free, err := freeSpace(s.dir)
	if err != nil {
		return
	}
	limit := lowSpace(total)
	switch {
	case !s.low && free < limit:
		s.low = true
		s.log.Warn("little space is left for the store", "directory", s.dir, "free", free, "of", total)
		s.notify(store.Notice{Warning: true, Reason: "StoreSpaceLow", Message: fmt.Sprintf(
			"%s of %s are free on the file system of %s: when it is full, only deletions and updates that free space succeed",
			readable(free), readable(total), s.dir)})
	case s.low && free > limit+limit/4:
		s.low = false
		s.log.Info("the store has enough space again", "directory", s.dir, "free", free, "of", total)
		s.notify(store.Notice{Reason: "StoreSpaceRecovered", Message: fmt.Sprintf(
			"%s of %s are free on the file system of %s", readable(free), readable(total), s.dir)})
	}
}

// readable returns a number of bytes for people.
func readable(bytes int64) string {
	if bytes < 10<<20 {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}

// freeSpace returns how large the file system of a directory is, and how much of it is free for
// this process.
func freeSpace(dir string) (total, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, os.NewSyscallError("statfs", err)
	}
	return int64(st.Blocks * uint64(st.Bsize)), int64(st.Bavail * uint64(st.Bsize)), nil
}
