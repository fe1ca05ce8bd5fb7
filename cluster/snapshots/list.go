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
	Plain    bool      `json:"plain,omitempty"`  // everyone who can read the file can read the Secrets in it
	Keys     bool      `json:"keys,omitempty"`   // the file has the keys of the cluster; not known of an encrypted file
	Remark   string    `json:"remark,omitempty"` // for users, such as why the beginning of the file cannot be read
}

// List returns the snapshots in a directory by their time, the newest first. It reads the beginning of each only: a
// snapshot, or a file that is encrypted with age, is one whatever its name, and so is a damaged file with the name of
// one. The error matches [fs.ErrNotExist] if there is no such directory.
func List(dir string) ([]Listed, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing snapshots: %w", err)
	}
	var all []Listed
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if l, ok := look(filepath.Join(dir, e.Name())); ok {
			all = append(all, l)
		}
	}
	slices.SortStableFunc(all, func(a, b Listed) int { return b.Time.Compare(a.Time) })
	return all, nil
}

// look reads the beginning of a file; ok is false if it is not a snapshot, or has gone.
func look(path string) (l Listed, ok bool) {
	named := strings.HasSuffix(path, Extension)
	f, err := os.Open(path)
	if err != nil {
		return Listed{File: path, Remark: err.Error()}, named && !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Listed{File: path, Remark: err.Error()}, named
	}
	l = Listed{File: path, Size: info.Size(), Time: info.ModTime()}
	in := bufio.NewReader(f)
	if head, _ := in.Peek(len(ageMagic)); string(head) == ageMagic {
		l.Sealed, l.Remark = true, "encrypted"
		return l, true
	}
	if !named && !snapshot.Begins(in) {
		return l, false
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
	l.Plain, l.Keys = r.Info.Secrets == snapshot.Plain, r.Info.Keys
	switch {
	case l.Plain && l.Keys:
		l.Remark = "plain Secrets and keys of the cluster"
	case l.Plain:
		l.Remark = "plain Secrets"
	}
	return l, true
}
