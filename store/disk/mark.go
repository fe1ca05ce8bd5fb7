package disk

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sampan-io/sampan/internal/wholefile"
)

// closedFile has the place where the log ended at the last clean stop, so that a log which was cut off or damaged at its
// end afterwards is not taken for what a crash left (store-I7).
//
// The log only grows, and newer segments have higher numbers. So the place is a lower bound for ever, and the file stays
// until the next clean stop replaces it: a crash needs no protocol, and neither does a program of an older version, which
// does not know the file and goes on with the log.
const closedFile = "closed"

// A mark is a place in the log.
type mark struct {
	segment uint64
	salt    uint32
	end     int64 // where the next frame would go
}

// text returns the file's contents: a line for people, with a checksum.
func (m mark) text() string {
	line := fmt.Sprintf("clean stop: segment %d, salt %08x, end %d", m.segment, m.salt, m.end)
	return fmt.Sprintf("%s, checksum %08x\n", line, crc32.Checksum([]byte(line), castagnoli))
}

// readMark returns the mark of the last clean stop; ok is false if there is none, or it is damaged.
func readMark(dir string) (m mark, ok bool, err error) {
	data, err := os.ReadFile(filepath.Join(dir, closedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	if err != nil {
		return m, false, err
	}
	if _, err := fmt.Sscanf(string(data), "clean stop: segment %d, salt %x, end %d", &m.segment, &m.salt, &m.end); err != nil || m.text() != string(data) {
		return mark{}, false, fmt.Errorf("%s is damaged", filepath.Join(dir, closedFile))
	}
	return m, true, nil
}

// writeMark replaces the mark, unless it is there already.
func writeMark(dir string, m mark) error {
	if old, ok, _ := readMark(dir); ok && old == m {
		return nil
	}
	name := filepath.Join(dir, closedFile)
	return wholefile.Write(name, []byte(m.text()), 0o600, wholefile.Durable)
}

// check returns a [*CorruptError] if the log ends before the mark. newest is its last segment, nil if there is none, and at
// where the frames of that segment end.
func (m mark) check(dir string, newest *entry, at int64) error {
	advice := fmt.Sprintf(". To go on without the records that are missing, remove %s, which remembers that stop", filepath.Join(dir, closedFile))
	switch {
	case newest == nil || newest.number < m.segment:
		return &CorruptError{filepath.Join(dir, fileName(kindLog, m.segment)), 0, "it is missing, though the store was stopped cleanly when it was there" + advice}
	case newest.number == m.segment && newest.salt == m.salt && at < m.end:
		return &CorruptError{newest.name, at, fmt.Sprintf("its records end here, though the store was stopped cleanly when they ended at %d", m.end) + advice}
	}
	return nil
}
