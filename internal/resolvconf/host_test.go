package resolvconf

import (
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
