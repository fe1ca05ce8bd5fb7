package disk

import (
	"encoding/binary"
	"slices"

	"github.com/sampan-io/sampan/store"
)

// A stamped payload has, between its kind and its entries,
//
//	when the first entry was accepted, in Unix milliseconds
//	the number of authors, and of each the lengths and bytes of user and agent
//
// and in front of each entry the number of its author, from 1 (0: none), and by how many milliseconds it was accepted
// later, which is signed.

const (
	// maxName is the largest length of a name of an author, in bytes. Longer ones are cut.
	maxName = 256

	// sameAuthors is with how many of the authors before it one is compared. A batch has few.
	sameAuthors = 16
)

// A stamper encodes stamped payloads. It belongs to one goroutine and keeps its memory.
type stamper struct {
	authors []store.Author
	of      []int // the number of the author of each entry
}

// append appends what follows the kind of a stamped payload. There is at least one entry.
func (s *stamper) append(b []byte, version uint32, entries []store.Entry) []byte {
	s.authors, s.of = s.authors[:0], s.of[:0]
	for i := range entries {
		s.of = append(s.of, s.number(entries[i].Author))
	}
	first := entries[0].At
	b = binary.AppendUvarint(b, uint64(max(first, 0)))
	b = binary.AppendUvarint(b, uint64(len(s.authors)))
	for _, a := range s.authors {
		b = appendName(appendName(b, a.User), a.Agent)
	}
	for i, e := range entries {
		b = binary.AppendUvarint(b, uint64(s.of[i]))
		b = binary.AppendVarint(b, e.At-first)
		b = appendEntry(b, version, e)
	}
	clear(s.authors) // the names may be parts of requests
	return b
}

// number returns the number of an author, which is new unless it is one of the last ones.
func (s *stamper) number(a store.Author) int {
	if a == (store.Author{}) {
		return 0
	}
	from := max(len(s.authors)-sameAuthors, 0)
	if i := slices.Index(s.authors[from:], a); i >= 0 {
		return from + i + 1
	}
	s.authors = append(s.authors, a)
	return len(s.authors)
}

func appendName(b []byte, name string) []byte {
	name = name[:min(len(name), maxName)]
	return append(binary.AppendUvarint(b, uint64(len(name))), name...)
}

// stamps is the part that the stamps of a payload share.
type stamps struct {
	first   int64
	authors [][2][]byte // user and agent
}

// decode reads the part before the first entry. It reports false if that is malformed.
func (s *stamps) decode(c *cursor) bool {
	s.first = int64(c.number())
	n := c.number()
	if n > uint64(len(c.b)) { // each has two bytes at least
		return false
	}
	for range n {
		s.authors = append(s.authors, [2][]byte{c.piece(), c.piece()})
		if c.bad {
			return false
		}
	}
	return !c.bad
}

// next reads the stamp of an entry. A malformed one makes the cursor bad.
func (s *stamps) next(c *cursor, e *raw) {
	n := c.number()
	e.at = s.first + c.signed()
	switch {
	case n > uint64(len(s.authors)):
		c.fail()
	case n > 0:
		e.user, e.agent = s.authors[n-1][0], s.authors[n-1][1]
	}
}
