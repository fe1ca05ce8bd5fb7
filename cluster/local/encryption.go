package local

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/sampan-io/sampan/store/encryption"
)

// RotateEncryptionKey gives the cluster a new key for encryption on disk, and returns the name of the key. A cluster
// that runs uses it at once, and encrypts its records again.
func (p Profile) RotateEncryptionKey(now time.Time) (string, error) {
	s, found, err := p.savedSettings()
	if err != nil {
		return "", err
	}
	if config := s.Server.Get("encryption-provider-config"); config != "" {
		return "", fmt.Errorf("cluster %s takes its keys from %s: put a new key before the others there, and start the cluster again unless it runs with --encryption-provider-config-automatic-reload", p.Name, config)
	}
	name, err := encryption.Rotate(p.EncryptionKeys(), now)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !found:
		return "", fmt.Errorf("there is no cluster %s in %s", p.Name, p.DataDir)
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w: if cluster %s has run without it, its next start makes it; otherwise restore it from a backup", err, p.Name)
	case err != nil:
		return "", fmt.Errorf("adding a key: %w", err)
	}
	return name, nil
}

// SecretKeys returns the file with the keys that Secrets are encrypted with on disk and in snapshots, by the saved
// settings.
func (p Profile) SecretKeys() (string, error) {
	s, _, err := p.savedSettings()
	return cmp.Or(s.Server.Get("encryption-provider-config"), p.EncryptionKeys()), err
}
