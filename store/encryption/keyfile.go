package encryption

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/internal/wholefile"
)

// keySize is the size of a key that this package makes, in bytes.
const keySize = 32

// comment begins the file with the cluster's own keys.
const comment = `# The keys with which the Secrets of this cluster are encrypted on disk. Without them the data cannot be read: a backup
# needs this file. ` + "`sampan encryption rotate-key`" + ` adds a key; a key that no record needs is removed at the next start.
`

// newConfiguration returns the configuration of a cluster with a new key.
func newConfiguration(now time.Time) *configuration {
	return &configuration{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		Resources: []resourceConfig{{
			Resources: []string{"secrets"},
			Providers: []providerConfig{
				{AESGCM: &keysConfig{Keys: []keyConfig{newKey(now, nil)}}},
				{Identity: &struct{}{}}, // data of earlier versions
			},
		}},
	}
}

// newKey returns a key, whose name is when it was made.
func newKey(now time.Time, others []keyConfig) keyConfig {
	base := now.UTC().Format("20060102-150405")
	name := base
	for i := 2; slices.ContainsFunc(others, func(k keyConfig) bool { return k.Name == name }); i++ {
		name = fmt.Sprintf("%s-%d", base, i)
	}
	value := make([]byte, keySize)
	_, _ = rand.Read(value) // it never fails
	return keyConfig{Name: name, Secret: base64.StdEncoding.EncodeToString(value)}
}

// own returns the list of the cluster's own keys, the newest first.
func (c *configuration) own() *keysConfig {
	for _, r := range c.Resources {
		if len(r.Providers) > 0 && r.Providers[0].AESGCM != nil {
			return r.Providers[0].AESGCM
		}
	}
	return nil
}

// save writes a configuration, so that it is there wholly and durably or not at all, and returns the text of the file.
func save(path string, c *configuration) ([]byte, error) {
	data, err := encode(comment, c)
	if err != nil {
		return nil, err
	}
	return data, wholefile.Write(path, data, 0o600, wholefile.Durable)
}

// encode returns the text of a file with a configuration.
func encode(comment string, c *configuration) ([]byte, error) {
	data, err := yaml.Marshal(c)
	return append([]byte(comment), data...), err
}

// load reads a configuration.
func load(path string) (*configuration, []byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	c, err := parse(path, data)
	return c, data, err
}

// Rotate adds a key to the file of a cluster's own keys, which new values are then encrypted with, and returns its name. A
// cluster that runs reads the file again, and encrypts its values with the new key. The earlier keys stay. An error that
// matches [fs.ErrNotExist] means that there is no such file.
func Rotate(path string, now time.Time) (name string, err error) {
	c, _, err := load(path)
	if err != nil {
		return "", err
	}
	keys := c.own()
	if keys == nil {
		return "", fmt.Errorf("%s: the first provider must be aesgcm", path)
	}
	k := newKey(now, keys.Keys)
	keys.Keys = slices.Insert(keys.Keys, 0, k)
	_, err = save(path, c)
	return k.Name, err
}

// maxFormer is how many removed keys are kept.
const maxFormer = 64

// formerComment begins the file with the removed keys.
const formerComment = `# Keys that no record of this cluster needs any more. Snapshots and other backups from before do: "sampan snapshot
# restore" and "sampan reset" read them here. Nothing is encrypted with them. Remove this file if there are no such backups.
`

// FormerFile returns the path of the file with the keys that were removed from the file of a cluster's own keys. It is
// beside that file, and has the same format.
func FormerFile(keys string) string {
	return strings.TrimSuffix(keys, ".yaml") + "-former.yaml"
}

// keepFormer adds removed keys to the file of these, and forgets the oldest ones of too many.
func keepFormer(path string, removed []keyConfig) error {
	c, _, err := load(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c = newConfiguration(time.Time{})
		c.own().Keys = nil
	case err != nil:
		return err
	case c.own() == nil:
		return fmt.Errorf("%s: the first provider must be aesgcm", path)
	}
	own := c.own()
	own.Keys = slices.Concat(removed, slices.DeleteFunc(own.Keys, func(k keyConfig) bool { return slices.Contains(removed, k) }))
	own.Keys = own.Keys[:min(len(own.Keys), maxFormer)]
	data, err := encode(formerComment, c)
	if err != nil {
		return err
	}
	return wholefile.Write(path, data, 0o600, wholefile.Durable)
}

// addFormer adds the keys of a file of removed keys, if there is one, for decryption.
func (r *rules) addFormer(path string, log *slog.Logger) error {
	c, _, err := load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading earlier keys of the cluster: %w", err)
	}
	former, err := c.build(path, log)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	r.add(former.keys...)
	return nil
}

func keyNames(keys []keyConfig) (names []string) {
	for _, k := range keys {
		names = append(names, k.Name)
	}
	return names
}

// ownKeys reads the file of the cluster's own keys. If there is none, they are new and saved is false. The advice ends an error.
func ownKeys(path string, now time.Time, advice string) (c *configuration, data []byte, saved bool, err error) {
	c, data, err = load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newConfiguration(now), nil, false, nil
	}
	if err != nil {
		return nil, nil, false, fmt.Errorf("reading the keys of the cluster: %w. %s", err, advice)
	}
	return c, data, true, nil
}
