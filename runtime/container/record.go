package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sampan-io/sampan/internal/wholefile"
)

// A Record is the stored state of a container, apart from the kernel's. It is written to
// disk when it changes.
type Record struct {
	ID      string
	Pod     string // the id of its sandbox
	Spec    Spec
	LogPath string // absolute; "" means that its output is thrown away
	About   []byte // whatever the caller wants to find again

	Created  time.Time
	Started  time.Time // zero: never
	Starting bool      // set just before a process is made: if Pid is zero then, the start was cut off
	Pid      int       // of the first process, as the host sees it
	PidStart uint64    // its start time: the number alone may be taken again
	NoStdin  bool      `json:",omitempty"` // standard input was open and is closed for good

	Exit *Exit `json:"-"` // in a file of its own
}

// State is the state of a container.
type State int

// The states of a container, in their order.
const (
	Created State = iota
	Running
	Exited
)

// State follows from what is known.
func (r *Record) State() State {
	switch {
	case r.Exit != nil:
		return Exited
	case r.Pid != 0:
		return Running
	}
	return Created
}

const (
	recordFile = "record.json"
	exitFile   = "exit.json"
)

// save writes v so that a reader sees it whole or not at all. The state directory
// lives as long as the boot does, so nothing is synced.
func save(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return wholefile.Write(path, data, 0o600, wholefile.UntilBoot)
}

// loadRecord reads what is in a container's directory.
func loadRecord(dir string) (*Record, error) {
	var r Record
	data, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Join(dir, recordFile), err)
	}
	data, err = os.ReadFile(filepath.Join(dir, exitFile))
	if errors.Is(err, fs.ErrNotExist) {
		return &r, nil
	}
	if err != nil {
		return nil, err
	}
	r.Exit = &Exit{}
	if err := json.Unmarshal(data, r.Exit); err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Join(dir, exitFile), err)
	}
	return &r, nil
}
