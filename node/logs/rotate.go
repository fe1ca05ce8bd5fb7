package logs

import (
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// stampFormat is the end of the name of a rotated file, as upstream's kubelet writes it.
const stampFormat = "20060102-150405"

// unfinished is the end of the name of a file that is being compressed.
const unfinished = ".tmp"

// Limits of the logs of a container.
type Limits struct {
	Size  int64 // in bytes, at which a file is rotated
	Files int   // that are kept, with the one that is being written; at least 2
}

// Rotate renames the log at path if it has reached the size limit, removes the oldest files of that log and compresses
// all but the newest of the rest. Then it calls reopen, which has to make the writer of the log open path again; if that
// fails, the renaming is undone. It reports whether it rotated. Other programs must not rotate the same log.
func Rotate(path string, l Limits, now time.Time, reopen func() error) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() < l.Size {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := tidy(path, l.Files-2); err != nil { // the new file and the one that is renamed below come in addition
		return false, err
	}
	to := path + "." + now.UTC().Format(stampFormat)
	if err := os.Rename(path, to); err != nil {
		return false, err
	}
	if err := reopen(); err != nil {
		return false, errors.Join(err, os.Rename(to, path))
	}
	return true, nil
}

// tidy removes all but the newest rotated files, and compresses those.
func tidy(path string, keep int) error {
	all, err := rotatedFiles(path)
	if err != nil {
		return err
	}
	for len(all) > max(keep, 0) {
		if err := os.Remove(all[0]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		all = all[1:]
	}
	for _, file := range all {
		if !strings.HasSuffix(file, ".gz") {
			if err := compress(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// rotatedFiles returns the rotated files of a log, the oldest first. It removes files that a crash left half written.
func rotatedFiles(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		stamp, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		file := filepath.Join(filepath.Dir(path), e.Name())
		switch {
		case !ok:
		case strings.HasSuffix(stamp, unfinished):
			_ = os.Remove(file)
		default:
			if _, err := time.Parse(stampFormat, strings.TrimSuffix(stamp, ".gz")); err == nil {
				all = append(all, file)
			}
		}
	}
	slices.Sort(all)
	return all, nil
}

// compress replaces a file by a compressed one.
func compress(file string) (err error) {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	tmp := file + ".gz" + unfinished
	out, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp)
		}
	}()
	z := gzip.NewWriter(out)
	_, err = io.Copy(z, in)
	if err = cmp.Or(err, z.Close(), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, file+".gz"); err != nil {
		return err
	}
	return os.Remove(file)
}
