package wholefile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sampan-io/sampan/internal/wholefile"
)

// TestOutputFollowsLinks writes outputs to the kinds of files that a user can name.
func TestOutputFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at("sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		"link": "file", "chain": "link", "dangling": "sub/made", "sub/up": "../made2", "loop": "loop", "lost": "no/such", "device": os.DevNull,
	} {
		if err := os.Symlink(target, at(link)); err != nil {
			t.Skip(err)
		}
	}
	for _, tt := range []struct {
		name, written string // the second is the file that has the contents; empty: none
		fails         bool
	}{
		{"file", "file", false},
		{"link", "file", false},
		{"chain", "file", false},
		{"new", "new", false},
		{"dangling", "sub/made", false},
		{"sub/up", "made2", false},
		{"device", "", false},
		{"loop", "", true},
		{"lost", "", true},
		{"sub", "", true},
	} {
		before, _ := os.Readlink(at(tt.name))
		f, err := wholefile.CreateOutput(at(tt.name), 0o644)
		if err == nil {
			_, err = f.Write([]byte(tt.name))
			if e := f.Commit(); err == nil {
				err = e
			}
			f.Discard()
		}
		if (err != nil) != tt.fails {
			t.Errorf("%s: error %v", tt.name, err)
		}
		if after, _ := os.Readlink(at(tt.name)); after != before {
			t.Errorf("%s is a link to %q, want %q", tt.name, after, before)
		}
		if tt.written != "" {
			if text, err := os.ReadFile(at(tt.written)); err != nil || string(text) != tt.name {
				t.Errorf("%s: %s has %q, %v", tt.name, tt.written, text, err)
			}
		}
	}
	if st, err := os.Stat(os.DevNull); err != nil || st.Mode()&fs.ModeDevice == 0 {
		t.Fatalf("%s is %v, %v", os.DevNull, st, err)
	}

	// An output that is given up leaves the file as it was.
	f, err := wholefile.CreateOutput(at("chain"), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.Write([]byte("a part"))
	f.Discard()
	if text, err := os.ReadFile(at("file")); err != nil || string(text) != "chain" {
		t.Errorf("after an output that was given up: %q, %v", text, err)
	}
}
