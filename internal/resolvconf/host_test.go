package resolvconf

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestWhatStandsBehindAStub has the files of a host whose resolver is a stub, one after the
// other.
func TestWhatStandsBehindAStub(t *testing.T) {
	dir := t.TempDir()
	file, behind := filepath.Join(dir, "resolv.conf"), []string{filepath.Join(dir, "systemd"), filepath.Join(dir, "network-manager")}
	for _, step := range []struct{ path, text, want string }{
		{file, "nameserver 127.0.0.53\n", ""},
		{behind[1], "nameserver 192.0.2.2\n", "192.0.2.2"},
		{behind[0], "nameserver 127.0.0.1\n", "192.0.2.2"},
		{behind[0], "nameserver 192.0.2.1\n", "192.0.2.1"},
		{file, "nameserver 127.0.0.53\nnameserver 192.0.2.3\n", "192.0.2.3"},
	} {
		if err := os.WriteFile(step.path, []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var want []string
		if step.want != "" {
			want = []string{step.want}
		}
		if got := first(file, behind).Servers; !slices.Equal(got, want) {
			t.Errorf("after %q in %s: %q, want %q", step.text, filepath.Base(step.path), got, want)
		}
	}
}

// TestWatchedFiles has a file that is a link, and one of a program that does not run.
func TestWatchedFiles(t *testing.T) {
	dir := t.TempDir()
	link, file := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "run", "stub.conf")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if got, want := watched([]string{link, filepath.Join(dir, "absent", "resolv.conf")}), []string{link, file}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAddresses(t *testing.T) {
	got := addresses([]string{"192.0.2.9", "2001:db8::1", "192.0.2.1", "192.0.2.9", "x"})
	if want := "[192.0.2.1 192.0.2.9 2001:db8::1]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
