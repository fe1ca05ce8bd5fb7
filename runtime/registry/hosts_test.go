package registry

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestConfigurationIsARegularFile has files that would be read for ever.
func TestConfigurationIsARegularFile(t *testing.T) {
	for name, make := range map[string]func(file string) error{
		"must be a regular file":  func(file string) error { return os.Symlink("/dev/zero", file) },
		"regular file":            func(file string) error { return unix.Mkfifo(file, 0o600) },
		"at most 1048576 bytes":   func(file string) error { return os.WriteFile(file, []byte(strings.Repeat("#", 1<<20+1)), 0o600) },
		"registry.example: open ": func(file string) error { return os.Symlink(file, file) },
	} {
		dir := t.TempDir()
		if err := make(filepath.Join(dir, "hosts.toml")); err != nil {
			t.Fatal(err)
		}
		if _, err := configured(dir, "registry.example"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
}
