package encryption

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
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
	data, err := yaml.Marshal(c)
	if err != nil {
		return nil, err
	}
	data = append([]byte(comment), data...)
	return data, wholefile.Write(path, data, 0o600, wholefile.Durable)
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

// ownKeys reads the file of the cluster's own keys. If there is none, they are new and saved is false.
func ownKeys(path string, now time.Time) (c *configuration, data []byte, saved bool, err error) {
	c, data, err = load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newConfiguration(now), nil, false, nil
	}
	if err != nil {
		return nil, nil, false, fmt.Errorf("reading the keys of the cluster: %w. Restore the file from a backup; without it the Secrets of the cluster cannot be read", err)
	}
	return c, data, true, nil
}
