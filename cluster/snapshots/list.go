package snapshots

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sampan-io/sampan/store/snapshot"
)

// Extension ends the names of snapshot files.
const Extension = ".snapshot"

// A Listed is a file in a directory of snapshots.
type Listed struct {
	File     string    `json:"file"` // path
	Size     int64     `json:"size"` // in bytes
	Time     time.Time `json:"time"` // of the snapshot; of an encrypted or bad file that of its last change
	Cluster  string    `json:"cluster,omitempty"`
	Revision string    `json:"revision,omitempty"`
	Sealed   bool      `json:"sealed,omitempty"`
	Remark   string    `json:"remark,omitempty"` // why the beginning of the file cannot be read
}

// List returns the snapshots in a directory by their time, the newest first. It reads the beginning of each only.
// There are none in a directory that does not exist.
func List(dir string) ([]Listed, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing snapshots: %w", err)
	}
	var all []Listed
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), Extension) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if l, ok := look(filepath.Join(dir, e.Name())); ok {
			all = append(all, l)
		}
	}
	slices.SortStableFunc(all, func(a, b Listed) int { return b.Time.Compare(a.Time) })
	return all, nil
}

// look reads the beginning of a file; ok is false if it has gone.
func look(path string) (l Listed, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return Listed{File: path, Remark: err.Error()}, !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Listed{File: path, Remark: err.Error()}, true
	}
	l = Listed{File: path, Size: info.Size(), Time: info.ModTime()}
	in := bufio.NewReader(f)
	if head, _ := in.Peek(len(ageMagic)); string(head) == ageMagic {
		l.Sealed, l.Remark = true, "encrypted"
		return l, true
	}
	r, err := snapshot.NewReader(in)
	if err == nil {
		err = checkTexts(r.Info)
	}
	if err != nil {
		l.Remark = err.Error()
		return l, true
	}
	l.Time, l.Cluster, l.Revision = r.Info.Time, r.Info.Cluster, fmt.Sprint(r.Info.Revision)
	return l, true
}
