package snapshot

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/sampan-io/sampan/store"
)

// FormatVersion is the version of the snapshots that this program writes. It reads this one and older ones.
const FormatVersion = 1

// maxVersion is above all format versions that there will be: a larger number is damage.
const maxVersion = 1000

// maxRevision is above the revision of each snapshot. Revisions have 63 bits, and what is made from a snapshot uses higher ones.
const maxRevision store.Revision = 1<<63 - 1<<32

const (
	magic     = "SAMPANSN"
	preamble  = len(magic) + 4 + 4 // to the length of the info
	frameHead = 8

	maxInfo    = 1 << 20
	maxValue   = 16 << 20 // of a key and its value, as package store has it
	maxFrame   = maxValue + 64<<10
	usualFrame = 64 << 10 // a frame of this size takes no more records
)

// Kinds of frames: the first byte of the payload.
const (
	kindRecords = 1
	kindFile    = 2
	kindSummary = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Forms of the values that the cluster encrypts on disk.
const (
	Encrypted = "encrypted" // with the keys of the cluster; of no use without them
	Plain     = "plain"     // for streams, and for files that are encrypted as a whole
)

// An Info describes a snapshot. Only Revision and Secrets have a meaning for this package.
type Info struct {
	ClusterID string         `json:"clusterID,omitempty"` // the UID of the namespace kube-system
	Cluster   string         `json:"cluster,omitempty"`   // name
	Version   string         `json:"version,omitempty"`   // of the program
	API       string         `json:"api,omitempty"`       // version of the Kubernetes API, such as v1.37.0
	Revision  store.Revision `json:"revision"`
	Time      time.Time      `json:"time"`
	Secrets   string         `json:"secrets"` // [Encrypted] or [Plain]

	// Keys says that the files have the keys of the cluster.
	Keys bool `json:"keys,omitempty"`

	// Settings are the settings that the objects depend on, in the format of the cluster's settings.
	Settings json.RawMessage `json:"settings,omitempty"`
}

// A Summary ends a snapshot.
type Summary struct {
	Records int   `json:"records"`
	Bytes   int64 `json:"bytes"` // of keys and values
	Files   int   `json:"files,omitempty"`

	// Unreadable is the number of records that the cluster could not read itself. They are left out.
	Unreadable int `json:"unreadable,omitempty"`

	SHA256 string `json:"sha256"` // of everything before the summary
}

// A DamageError is the fault of a snapshot and its place.
type DamageError struct {
	Offset int64 // in bytes
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("the snapshot is damaged at byte offset %d: %s", e.Offset, e.Reason)
}

// A ForeignError says that the data is not a snapshot, or not one that can be read.
type ForeignError struct{ Reason string }

func (e *ForeignError) Error() string { return e.Reason }

// checksum is the checksum of the frame with a number, from its length and payload.
func checksum(number uint64, length [4]byte, payload []byte) uint32 {
	var n [12]byte
	for i := range 8 {
		n[i] = byte(number >> (8 * i))
	}
	copy(n[8:], length[:])
	return crc32.Update(crc32.Checksum(n[:], castagnoli), castagnoli, payload)
}
