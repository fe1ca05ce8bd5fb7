package stats

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Space is what files occupy.
type Space struct{ Bytes, Inodes uint64 }

// OfDirectory counts the blocks and the inodes of a directory and of everything in it, on its file system only: a file with
// several names counts once. Files that vanish meanwhile do not count. It reads every directory, and returns ctx's error if
// ctx ends first. A directory that does not exist occupies nothing.
func OfDirectory(ctx context.Context, dir string) (Space, error) {
	var sum Space
	var device uint64
	seen := map[uint64]bool{} // inodes with several names
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return skipVanished(entry, err)
		}
		info, err := entry.Info()
		if err != nil {
			return skipVanished(entry, err)
		}
		at, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if path == dir {
			device = uint64(at.Dev) //nolint:unconvert // it has 32 bits on macOS
		}
		if uint64(at.Dev) != device { //nolint:unconvert // see above
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if at.Nlink > 1 && !entry.IsDir() {
			if seen[at.Ino] {
				return nil
			}
			seen[at.Ino] = true
		}
		sum.Inodes++
		sum.Bytes += uint64(max(0, at.Blocks)) * 512 // stat(2): always units of 512 bytes
		return nil
	})
	return sum, err
}

func skipVanished(entry fs.DirEntry, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		if entry != nil && entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	return err
}

// OfLogs counts the files of a directory, without directories below it.
func OfLogs(dir string) Space {
	var sum Space
	entries, err := os.ReadDir(dir)
	if err != nil {
		return sum
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		sum.Inodes++
		if at, ok := info.Sys().(*syscall.Stat_t); ok {
			sum.Bytes += uint64(max(0, at.Blocks)) * 512
		}
	}
	return sum
}

// On returns the space as the use of a file system, whose size and free space it has; fs may be nil.
func (s Space) On(fs *statsapi.FsStats, now time.Time) *statsapi.FsStats {
	out := &statsapi.FsStats{Time: metav1.NewTime(now), UsedBytes: &s.Bytes, InodesUsed: &s.Inodes}
	if fs != nil {
		out.AvailableBytes, out.CapacityBytes, out.InodesFree, out.Inodes = fs.AvailableBytes, fs.CapacityBytes, fs.InodesFree, fs.Inodes
	}
	return out
}
