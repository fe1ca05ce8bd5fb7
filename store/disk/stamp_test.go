package disk

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/store"
)

// stampedEntries are entries with authors and times of many kinds.
func stampedEntries() (entries []store.Entry) {
	for i := range 40 {
		e := store.Entry{Key: fmt.Sprint("pods/", i), Data: []byte("data"), Created: 1, Revision: store.Revision(i + 1), At: 1_800_000_000_000 + int64(i*(i-20))}
		switch i % 4 {
		case 0:
			e.Author = store.Author{User: fmt.Sprint("user-", i%12), Agent: "agent"}
		case 1:
			e.Author, e.Data = store.Author{User: strings.Repeat("long", 100)}, nil
		case 2:
			e.Author.Agent, e.Expires = "agent", 5
		}
		entries = append(entries, e)
	}
	return entries
}

func TestStampsAreReadAsWritten(t *testing.T) {
	var s stamper
	entries := stampedEntries()
	payload := s.append([]byte{payloadStamped}, FormatVersion, entries)
	n := 0
	err := decodeEntries(payload, func(r raw) error {
		want := entries[n]
		user := want.Author.User[:min(len(want.Author.User), maxName)]
		if got := r.entry(); got.Key != want.Key || got.Revision != want.Revision || got.Expires != want.Expires || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("entry %d is %+v, want %+v", n, got, want)
		}
		if r.at != want.At || string(r.user) != user || string(r.agent) != want.Author.Agent {
			t.Errorf("entry %d is by %q (%q) at %d, want %+v", n, r.user, r.agent, r.at, want)
		}
		if r.data != nil && string(payload[r.end-len(r.data):r.end]) != "data" {
			t.Errorf("entry %d has its data at %d", n, r.end-len(r.data))
		}
		n++
		return nil
	})
	if err != nil || n != len(entries) {
		t.Errorf("%d entries, %v", n, err)
	}
}

// FuzzDecodeEntries decodes payloads that no program has written, and writes each valid one again without its
// data.
func FuzzDecodeEntries(f *testing.F) {
	var s stamper
	f.Add(s.append([]byte{payloadStamped}, FormatVersion, stampedEntries()))
	f.Add(s.append([]byte{payloadStamped}, FormatVersion, stampedEntries()[:1]))
	f.Add(appendEntry([]byte{payloadBatch}, plainVersion, store.Entry{Key: "a", Data: []byte("b"), Revision: 1}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) == 0 || !hasEntries(payload[0]) {
			return
		}
		count := func(b []byte) (entries, data int, err error) {
			err = decodeEntries(b, func(r raw) error {
				entries++
				data += len(r.data)
				return nil
			})
			return entries, data, err
		}
		before, _, err := count(payload)
		if err != nil {
			return
		}
		purged, err := changed([]byte{payload[0]}, payload, func(r *raw) ([]byte, bool) { return nil, r.data != nil })
		if err != nil {
			t.Fatal(err)
		}
		if after, data, err := count(purged); err != nil || after != before || data > 0 {
			t.Errorf("of %d entries %d are left, with %d bytes, %v", before, after, data, err)
		}
	})
}
