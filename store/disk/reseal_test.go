package disk

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/sampan-io/sampan/store"
)

// TestFoldsReseal checks that a fold writes what Options.Reseal returns, unless it has to make space.
func TestFoldsReseal(t *testing.T) {
	dir := t.TempDir()
	opts := quiet
	rewritten := make(chan error, 1)
	opts.Rewritten = func(err error) { rewritten <- err }
	opts.Reseal = func(key string, data []byte) []byte {
		if key == "pods/a" && !bytes.HasPrefix(data, []byte("sealed ")) {
			return append([]byte("sealed "), data...)
		}
		return data
	}
	b, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if _, err := b.Load(ctx, func(store.Entry) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for i, key := range []string{"pods/a", "pods/b"} {
		e := store.Entry{Key: key, Data: []byte("plain"), Created: 1, Revision: store.Revision(i + 1)}
		if err := b.Commit(ctx, store.Batch{Entries: []store.Entry{e}}); err != nil {
			t.Fatal(err)
		}
	}
	d := b.(*directory)
	d.tight = true
	if !d.seal(ctx) {
		t.Fatal("no new segment")
	}
	d.startFold(ctx)
	d.folding.Wait()
	d.tight = false
	content := d.content
	if err := d.Rewrite(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-rewritten; err != nil {
		t.Fatal(err)
	}
	d.folding.Wait()
	if grown := d.content - content; grown != int64(len("sealed ")) {
		t.Errorf("the snapshot has grown by %d bytes after the fold for space, want %d", grown, len("sealed "))
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	got, revision, err := load(dir, quiet)
	if want := []string{"pods/a=sealed plain", "pods/b=plain"}; err != nil || !slices.Equal(got, want) || revision != 2 {
		t.Errorf("loaded %q at %d, %v, want %q at 2", got, revision, err, want)
	}
}
