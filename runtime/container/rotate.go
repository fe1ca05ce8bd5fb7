package container

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/sorting"
)

// LogLimits bound the logs of a container. The kubelet gives its containers the same
// bounds, by containerLogMaxSize and containerLogMaxFiles.
type LogLimits struct {
	Size  int64 // bytes of one file; 0 means that rotation is left to the client of CRI
	Files int   // the file that is written to and the older ones; at least 2
}

// The defaults of [LogLimits] are those of the kubelet.
const (
	DefaultLogSize  = 10 << 20
	DefaultLogFiles = 5
)

// Rotation of a log: the file at path is renamed to path.TIMESTAMP and a new one is
// made, without a write between, when a write would make it larger than allowed. A
// timestamp is the kubelet's, 20060102-150405. It is greater than that of the file
// before, so names sort by age even if a file is full in less than a second. Older
// files are compressed to path.TIMESTAMP.gz, and the oldest removed. A reader that
// follows a log finds its place in the order by the name that its open file has now.
const (
	stampFormat  = "20060102-150405"
	gzipSuffix   = ".gz"
	unfinished   = ".tmp" // of a file that is being compressed
	worthPacking = 10 * time.Second
)

// rotated is one of the older files of a log.
type rotated struct {
	stamp  string
	packed bool
}

func (r rotated) path(log string) string {
	if r.packed {
		return log + "." + r.stamp + gzipSuffix
	}
	return log + "." + r.stamp
}

// listRotated returns the older files of the log at path, the oldest first. Unless a
// compression is under way, it removes what one that was cut off has left.
func listRotated(path string, packing bool) ([]rotated, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var out []rotated
	for _, e := range entries {
		stamp, ours := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		if !ours || !e.Type().IsRegular() {
			continue
		}
		if strings.HasSuffix(stamp, unfinished) {
			if !packing {
				_ = os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
			}
			continue
		}
		stamp, packed := strings.CutSuffix(stamp, gzipSuffix)
		if _, err := time.Parse(stampFormat, stamp); err == nil {
			out = append(out, rotated{stamp: stamp, packed: packed})
		}
	}
	sorting.Slice(out, func(a, b rotated) int {
		return cmp.Or(cmp.Compare(a.stamp, b.stamp), compareBool(a.packed, b.packed))
	})
	return out, nil
}

// nextStamp returns the name of a file that is rotated now.
func nextStamp(old []rotated, now time.Time) string {
	now = now.UTC()
	if len(old) > 0 {
		if last, err := time.Parse(stampFormat, old[len(old)-1].stamp); err == nil && !now.Truncate(time.Second).After(last) {
			now = last.Add(time.Second)
		}
	}
	return now.Format(stampFormat)
}

// rotate replaces the file by an empty one. If that is not possible, the file stays.
// The caller holds mu.
func (l *logFile) rotate() error {
	old, err := listRotated(l.path, l.packing)
	if err != nil {
		return err
	}
	// With the one that is rotated now and the new one there are l.limits.Files.
	for len(old) > max(l.limits.Files-2, 0) {
		if err := os.Remove(old[0].path(l.path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		old = old[1:]
	}
	to := rotated{stamp: nextStamp(old, time.Now())}.path(l.path)
	renamed := true
	if err := os.Rename(l.path, to); errors.Is(err, fs.ErrNotExist) {
		renamed = false // the file was removed by another program
	} else if err != nil {
		return err
	}
	f, err := openLog(l.path)
	if err != nil {
		if renamed {
			err = errors.Join(err, os.Rename(to, l.path))
		}
		return err
	}
	_ = l.file.Close()
	l.file, l.size, l.torn = f, 0, false
	l.pack(old)
	return nil
}

// pack compresses older files in the background, one at a time. A log that rotates so
// fast that its files are removed soon is not worth the processor time. The caller
// holds mu.
func (l *logFile) pack(old []rotated) {
	if l.packing || l.start == nil {
		return
	}
	var files []string
	for _, r := range old {
		st, err := os.Stat(r.path(l.path))
		if err == nil && !r.packed && time.Since(st.ModTime()) > worthPacking {
			files = append(files, r.path(l.path))
		}
	}
	if len(files) == 0 {
		return
	}
	l.packing = l.start(func(ctx context.Context) {
		for _, file := range files {
			if err := l.compress(ctx, file); err != nil && ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) {
				l.log.Error("a rotated log couldn't be compressed", "log", file, "err", err)
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.packing = false
	})
}

// compress replaces a rotated file by a compressed one, unless it is removed meanwhile. A
// reader finds one of the two at each moment.
func (l *logFile) compress(ctx context.Context, path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	tmp := path + unfinished
	out, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(out)
	_, err = io.Copy(z, run.Reader(ctx, in))
	err = errors.Join(err, z.Close(), out.Close())
	l.mu.Lock() // no rotation removes files now
	defer l.mu.Unlock()
	if err == nil {
		_, err = os.Stat(path)
	}
	if err == nil {
		err = os.Rename(tmp, path+gzipSuffix)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("compressing %s: %w", path, err)
	}
	return os.Remove(path)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
