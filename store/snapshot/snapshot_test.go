package snapshot

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sampan-io/sampan/store"
)

var testInfo = Info{
	ClusterID: "a1b2", Cluster: "c", Version: "v1", Revision: 1 << 40, Time: time.Unix(1e9, 0).UTC(),
	Secrets: Encrypted, Settings: json.RawMessage(`{"simulatedNodes":3}`),
}

// entries returns n records in order, of different sizes.
func entries(n int) []store.Entry {
	var all []store.Entry
	for i := range n {
		e := store.Entry{
			Key: fmt.Sprintf("pods/default/p%06d", i), Data: bytes.Repeat([]byte{byte(i)}, i%700),
			Created: store.Revision(i + 1), Revision: store.Revision(1<<35 + i),
		}
		if i%3 == 0 {
			e.Expires = int64(i + 1)
		}
		all = append(all, e)
	}
	return all
}

func write(t testing.TB, all []store.Entry) ([]byte, Summary) {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, testInfo)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.AddFile("pki/ca.crt", []byte("certificate")); err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if err := w.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	sum, err := w.Close(2)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), sum
}

func read(data []byte) (info Info, all []store.Entry, files map[string]string, sum Summary, err error) {
	r, err := NewReader(bytes.NewReader(data))
	if err != nil {
		return info, nil, nil, sum, err
	}
	files = map[string]string{}
	sum, err = r.Read(Sink{
		Record: func(e store.Entry) error {
			e.Data = append([]byte{}, e.Data...)
			all = append(all, e)
			return nil
		},
		File: func(name string, data []byte) error { files[name] = string(data); return nil },
	})
	return r.Info, all, files, sum, err
}

func TestSnapshotRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 1000} {
		want := entries(n)
		data, sum := write(t, want)
		info, got, files, read, err := read(data)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(info) != fmt.Sprint(testInfo) || read != sum || read.Records != n || read.Unreadable != 2 || files["pki/ca.crt"] != "certificate" {
			t.Errorf("%d records: got info %v, files %v, summary %v, want %v, %v", n, info, files, read, testInfo, sum)
		}
		same := slices.EqualFunc(got, want, func(a, b store.Entry) bool {
			return a.Key == b.Key && bytes.Equal(a.Data, b.Data) && a.Created == b.Created && a.Revision == b.Revision && a.Expires == b.Expires
		})
		if !same {
			t.Errorf("%d records came back as %d, or different ones", n, len(got))
		}
	}
}

// small returns a snapshot with several frames, and where its frames begin.
func small(t testing.TB) (data []byte, starts []int) {
	data, _ = write(t, entries(400))
	at := preamble + int(binary.LittleEndian.Uint32(data[len(magic)+4:])) + 4
	for at < len(data) {
		starts = append(starts, at)
		at += frameHead + int(binary.LittleEndian.Uint32(data[at:]))
	}
	if at != len(data) || len(starts) < 4 {
		t.Fatalf("frames begin at %v of %d bytes", starts, len(data))
	}
	return data, starts
}

func TestSnapshotNoticesEveryFlippedBit(t *testing.T) {
	data, starts := small(t)
	near := func(i int) bool { // all near the boundaries of frames, and a part of the rest
		return i%97 == 0 || slices.ContainsFunc(starts, func(s int) bool { return i > s-20 && i < s+20 })
	}
	for i := range data {
		if i > starts[0] && !near(i) {
			continue
		}
		for bit := range 8 {
			bad := bytes.Clone(data)
			bad[i] ^= 1 << bit
			if _, _, _, _, err := read(bad); !refused(err) {
				t.Fatalf("bit %d of byte %d flipped: got error %v", bit, i, err)
			}
		}
	}
}

// refused reports whether an error is one of the format.
func refused(err error) bool {
	_, damaged := errors.AsType[*DamageError](err)
	_, foreign := errors.AsType[*ForeignError](err)
	return damaged || foreign
}

// A cluster that is made from a snapshot needs revisions above its own.
func TestSnapshotLeavesRevisions(t *testing.T) {
	for revision, ok := range map[store.Revision]bool{1<<63 - 1<<32 - 1: true, 1<<63 - 1<<32: false, 1<<63 - 1: false, 1<<64 - 1: false} {
		var out bytes.Buffer
		w, err := NewWriter(&out, Info{Revision: revision, Secrets: Plain})
		if err == nil {
			_, err = w.Close(0)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, _, _, _, err = read(out.Bytes()); (err == nil) != ok || !ok && !refused(err) {
			t.Errorf("revision %d: %v", revision, err)
		}
	}
}

func TestSnapshotNoticesMissingAndMovedFrames(t *testing.T) {
	data, starts := small(t)
	for i := range data {
		if i > starts[0] && i%97 != 0 && !slices.Contains(starts, i) {
			continue
		}
		if _, _, _, _, err := read(data[:i]); !refused(err) {
			t.Fatalf("cut off at byte %d: got error %v", i, err)
		}
	}
	cut := func(from, to int) []byte { return slices.Concat(data[:starts[from]], data[starts[to]:]) }
	for name, bad := range map[string][]byte{
		"frame missing":   cut(1, 2),
		"frame twice":     slices.Concat(data[:starts[2]], data[starts[1]:]),
		"frames swapped":  slices.Concat(data[:starts[1]], data[starts[2]:starts[3]], data[starts[1]:starts[2]], data[starts[3]:]),
		"more behind":     slices.Concat(data, []byte{0}),
		"second snapshot": slices.Concat(data, data),
	} {
		if _, _, _, _, err := read(bad); !refused(err) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

func TestSnapshotNamesTheFault(t *testing.T) {
	data, starts := small(t)
	edit := func(at int, with ...byte) []byte {
		b := bytes.Clone(data)
		copy(b[at:], with)
		return b
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":          {nil, "it is not a snapshot"},
		"foreign":        {[]byte("apiVersion: v1\nkind: List\n"), "it is not a snapshot"},
		"short":          {[]byte(magic), "byte offset 0: it ends in its first bytes"},
		"newer":          {edit(len(magic), 9), "format version 9, and this program reads versions up to 1: it was written by a newer sampan"},
		"bad version":    {edit(len(magic)+2, 9), "its format version is 589825"},
		"huge info":      {edit(len(magic)+4, 0xff, 0xff, 0xff, 0xff), "its description has 4294967295 bytes"},
		"wrong info":     {edit(preamble, 'x'), "the checksum of its description is wrong"},
		"huge frame":     {edit(starts[1], 0xff, 0xff, 0xff, 0xff), fmt.Sprintf("byte offset %d: a frame has 4294967295 bytes", starts[1])},
		"longer frame":   {edit(starts[1], 0, 0, 0xff, 0), fmt.Sprintf("byte offset %d: the snapshot ends in the middle of a frame", starts[1])},
		"flipped":        {edit(starts[2]+50, 0xaa), fmt.Sprintf("byte offset %d: the checksum of a frame is wrong", starts[2])},
		"cut at a frame": {data[:starts[2]], fmt.Sprintf("byte offset %d: the end of the snapshot is missing", starts[2])},
	} {
		if _, _, _, _, err := read(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// A length that the input does not have must not cost its memory.
func TestSnapshotClaimsCostNothing(t *testing.T) {
	data, starts := small(t)
	bad := binary.LittleEndian.AppendUint32(bytes.Clone(data[:starts[1]]), maxFrame)
	bad = append(bad, make([]byte, 100)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, _, _, err := read(bad)
	runtime.ReadMemStats(&after)
	if !refused(err) {
		t.Errorf("got error %v", err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("a claim of %d bytes took %d bytes of memory", maxFrame, used)
	}
}

func TestWriterRefusesBadRecords(t *testing.T) {
	good := store.Entry{Key: "pods/b", Data: []byte{}, Created: 1, Revision: 2}
	for name, change := range map[string]func(*store.Entry){
		"key of an earlier one": func(e *store.Entry) { e.Key = "pods/a" },
		"same key":              func(*store.Entry) {},
		"no key":                func(e *store.Entry) { e.Key = "" },
		"no value":              func(e *store.Entry) { e.Key, e.Data = "pods/c", nil },
		"large value":           func(e *store.Entry) { e.Key, e.Data = "pods/c", make([]byte, maxValue) },
		"later revision":        func(e *store.Entry) { e.Key, e.Revision = "pods/c", testInfo.Revision+1 },
		"made after the write":  func(e *store.Entry) { e.Key, e.Created = "pods/c", 3 },
	} {
		w, err := NewWriter(io.Discard, testInfo)
		if err == nil {
			err = w.Add(good)
		}
		if err != nil {
			t.Fatal(err)
		}
		e := good
		change(&e)
		if err := w.Add(e); err == nil {
			t.Errorf("%s was taken", name)
		}
		if _, err := w.Close(0); err == nil {
			t.Errorf("%s: the snapshot ended as a complete one", name)
		}
	}
}

func FuzzRead(f *testing.F) {
	data, _ := small(f)
	f.Add(data)
	f.Add([]byte(magic))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _, _, _, _ = read(data) })
}
