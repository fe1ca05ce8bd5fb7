package snapshots

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/wholefile"
	"github.com/sampan-io/sampan/store/snapshot"
)

// FailedReason is the reason of the Event about a snapshot that could not be saved.
const FailedReason = "SnapshotFailed"

// FileTime is the format of the time in the names of snapshots.
const FileTime = "20060102-150405"

// scheduled is in the names of the snapshots that a cluster saves by itself. Others are never removed.
const scheduled = "-scheduled-"

// A Schedule saves snapshots of a running cluster by itself, and removes the oldest ones of these.
type Schedule struct {
	Source Source
	Dir    string // it is made if there is none
	Name   string // of the cluster
	Every  time.Duration
	Keep   int // at least 1

	// Failed is called with the error of a snapshot that could not be saved.
	Failed func(error)

	Log *slog.Logger
}

// retryFailed is when a snapshot that could not be saved is tried again, unless the next one is earlier.
const retryFailed = 10 * time.Minute

// Run saves snapshots until ctx is cancelled. The time since the last one counts across restarts of the cluster.
func (s Schedule) Run(ctx context.Context) error {
	var failed time.Time
	for {
		now := time.Now()
		if !run.Pause(ctx, due(now, s.Last(), failed, s.Every).Sub(now)) {
			return nil
		}
		file, sum, err := s.save(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the cluster stops
		}
		if failed = (time.Time{}); err != nil {
			failed = time.Now()
			s.Log.ErrorContext(ctx, "cannot save a snapshot", "err", err)
			s.Failed(err)
			continue
		}
		s.Log.InfoContext(ctx, "saved a snapshot", "file", file, "records", sum.Records, "unreadable", sum.Unreadable)
		s.prune(ctx)
	}
}

// due returns when the next snapshot is saved: one period after the last one, at once if there is none, and some time
// after a failure.
func due(now, last, failed time.Time, every time.Duration) time.Time {
	next := now
	if !last.IsZero() && !last.After(now) {
		next = last.Add(every)
	}
	if !failed.IsZero() {
		if again := failed.Add(min(retryFailed, every)); again.After(next) {
			next = again
		}
	}
	return next
}

// save saves a snapshot of now.
func (s Schedule) save(ctx context.Context) (file string, sum snapshot.Summary, err error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return "", sum, err
	}
	s.removeIncomplete(ctx) // before, because they may fill the disk
	file = filepath.Join(s.Dir, s.Name+scheduled+time.Now().UTC().Format(FileTime)+Extension)
	f, err := wholefile.Create(file, 0o600, wholefile.Durable)
	if err != nil {
		return file, sum, err
	}
	defer f.Discard()
	out := bufio.NewWriterSize(f, 256<<10)
	if sum, err = s.Source.Write(ctx, out, false); err == nil {
		err = out.Flush()
	}
	if err != nil {
		return file, sum, fmt.Errorf("writing %s: %w", file, err)
	}
	return file, sum, f.Commit()
}

// timeOf returns the time in the name of a scheduled snapshot of the cluster; ok is false for other files.
func (s Schedule) timeOf(name string) (t time.Time, ok bool) {
	text, ours := strings.CutPrefix(name, s.Name+scheduled)
	text, ends := strings.CutSuffix(text, Extension)
	if !ours || !ends {
		return t, false
	}
	t, err := time.Parse(FileTime, text)
	return t, err == nil
}

// names returns the names of the scheduled snapshots, the oldest first.
func (s Schedule) names() (all []string) {
	entries, err := os.ReadDir(s.Dir) // sorted by name, and so by time
	if err != nil {
		return nil // there is none, or the next snapshot fails with a better message
	}
	for _, e := range entries {
		if _, ok := s.timeOf(e.Name()); ok && e.Type().IsRegular() {
			all = append(all, e.Name())
		}
	}
	return all
}

// Last returns the time of the newest scheduled snapshot in Dir, or the zero time.
func (s Schedule) Last() (t time.Time) {
	if all := s.names(); len(all) > 0 {
		t, _ = s.timeOf(all[len(all)-1])
	}
	return t
}

// prune removes the oldest scheduled snapshots.
func (s Schedule) prune(ctx context.Context) {
	all := s.names()
	s.remove(ctx, all[:max(0, len(all)-s.Keep)])
}

// removeIncomplete removes the incomplete scheduled snapshots that a crash has left.
func (s Schedule) removeIncomplete(ctx context.Context) {
	var left []string
	entries, _ := os.ReadDir(s.Dir) // the next time otherwise
	for _, e := range entries {
		if wholefile.Incomplete(e.Name()) && strings.HasPrefix(e.Name(), "."+s.Name+scheduled) {
			left = append(left, e.Name())
		}
	}
	s.remove(ctx, left)
}

func (s Schedule) remove(ctx context.Context, names []string) {
	for _, name := range names {
		if err := os.Remove(filepath.Join(s.Dir, name)); err != nil {
			s.Log.WarnContext(ctx, "cannot remove an old snapshot", "err", err)
		}
	}
}
