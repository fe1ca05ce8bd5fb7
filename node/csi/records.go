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
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/wholefile"
)

const (
	recordFile = "vol_data.json"
	maxHandle  = 64 << 10             // bytes; CSI allows 128
	maxRecord  = 6*maxHandle + 16<<10 // bytes; JSON has up to six for one of a handle. A driver may have written the file
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

// save writes the record of a volume into dir, which it makes.
func (m *Manager) save(dir string, r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	at, err := m.below(dir, true)
	if err != nil {
		return err
	}
	defer at.Close()
	if err := wholefile.WriteIn(at, recordFile, "", b, 0o600, wholefile.Durable); err != nil {
		return fmt.Errorf("failed to save volume data file %s: %w", filepath.Join(dir, recordFile), err)
	}
	return nil
}

// load reads the record in dir.
func (m *Manager) load(dir string) (record, error) {
	var r record
	b, err := m.read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err == nil && (!driverName.MatchString(r.Driver) || r.Handle == "") {
		err = errors.New("it names no volume")
	}
	if err != nil {
		return r, fmt.Errorf("failed to parse volume data file [%s]: %w", filepath.Join(dir, recordFile), err)
	}
	return r, nil
}

// A podRecord is the record of a pod's volume.
type podRecord struct {
	dir string // name of its directory
	record
}

// podRecords returns the records of a pod's volumes. It logs and skips a record that it cannot read: its driver is not
// called then to unpublish the volume.
func (m *Manager) podRecords(pod types.UID) ([]podRecord, error) {
	dir := m.published(pod)
	names, err := m.listed(dir)
	if err != nil {
		return nil, err
	}
	var records []podRecord
	for _, name := range names {
		r, err := m.load(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // nothing was published
		}
		if err != nil {
			m.opts.Log.Warn("invalid record of a pod's volume: the driver will not unpublish it", "pod", pod, "err", err)
			continue
		}
		records = append(records, podRecord{name, r})
	}
	return records, nil
}

// read returns what is in the file of a record.
func (m *Manager) read(dir string) ([]byte, error) {
	at, err := m.below(dir, false)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	info, err := at.Lstat(recordFile)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is %s, want a file", info.Mode().Type())
	}
	f, err := at.OpenFile(recordFile, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO may have taken its place
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxRecord))
}

// discard removes a record with its directory and the empty directory or file in it where the volume was mounted. It
// removes nothing that is in use: a directory with something in it is an error.
func (m *Manager) discard(dir, target string) error {
	paths := []string{target}
	entries, _ := os.ReadDir(dir) // what can't be read can't be removed either
	for _, e := range entries {
		if wholefile.Incomplete(e.Name()) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	for _, path := range append(paths, filepath.Join(dir, recordFile), dir) {
		if err := m.remove(path); err != nil {
			return err
		}
	}
	return nil
}
