package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	recordFile = "vol_data.json"
	maxRecord  = 64 << 10 // a driver may have written it
)

// PodRecords returns the names that lead from the directory of pods to the records of their volumes; * is any.
func PodRecords() []string { return []string{"*", "volumes", "kubernetes.io~csi", "*", recordFile} }

// StagingRecords returns the names that lead from plugins/kubernetes.io to the records of staged volumes; * is any.
func StagingRecords() []string { return []string{"csi", "*", "*", recordFile} }

// A record is what is known on disk of a volume, in the fields of kubelet (csi-C2).
type record struct {
	Handle       string `json:"volumeHandle"`
	Driver       string `json:"driverName"`
	Name         string `json:"specVolID,omitempty"`
	Node         string `json:"nodeName,omitempty"`
	Mode         string `json:"volumeLifecycleMode,omitempty"`
	AttachmentID string `json:"attachmentID,omitempty"`
}

// save writes a record into dir, which it makes.
func (r record) save(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fresh := filepath.Join(dir, recordFile+".new")
	if err := os.WriteFile(fresh, b, 0o600); err != nil {
		return fmt.Errorf("failed to save volume data file %s: %w", fresh, err)
	}
	return os.Rename(fresh, filepath.Join(dir, recordFile))
}

// load reads a record.
func load(dir string) (record, error) {
	var r record
	path := filepath.Join(dir, recordFile)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return r, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err == nil && (!driverName.MatchString(r.Driver) || r.Handle == "") {
		err = errors.New("it names no volume")
	}
	if err != nil {
		return r, fmt.Errorf("failed to parse volume data file [%s]: %w", path, err)
	}
	return r, nil
}

// discard removes a record with its directory and the empty directory or file in it where the volume was mounted. It
// removes nothing that is in use: a directory with something in it is an error.
func discard(dir, target string) error {
	for _, path := range []string{target, filepath.Join(dir, recordFile+".new"), filepath.Join(dir, recordFile), dir} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
