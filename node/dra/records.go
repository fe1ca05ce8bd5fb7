package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/wholefile"
)

// recordFile is the file with all claims, in Options.Root.
const recordFile = "claims.json"

// A claim is one that drivers have prepared on this node, or were asked to (dra-D1).
type claim struct {
	UID       types.UID           `json:"uid"`
	Name      string              `json:"name"`
	Namespace string              `json:"namespace"`
	Pods      map[types.UID]bool  `json:"pods"`    // that use it
	Drivers   map[string][]device `json:"drivers"` // that have devices in it, with what they have prepared

	// What follows is not on disk: after a restart, drivers are asked again before another sandbox is made.
	prepared    bool
	unpreparing bool // its last pod has ended: no other pod may use it any more
}

// A device is one that a driver has prepared.
type device struct {
	Pool     string   `json:"pool"`
	Name     string   `json:"name"`
	Share    string   `json:"share,omitempty"`
	Requests []string `json:"requests,omitempty"` // of the claim; empty means all
	CDI      []string `json:"cdi,omitempty"`      // names for the container runtime
}

// A key names a claim.
type key struct{ namespace, name string }

func (c *claim) key() key { return key{c.Namespace, c.Name} }

// save writes all claims. The caller holds mu.
func (m *Manager) save() error {
	all := make([]*claim, 0, len(m.claims))
	for _, c := range m.claims {
		all = append(all, c)
	}
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	path := filepath.Join(m.opts.Root, recordFile)
	return wholefile.Write(path, b, 0o600, wholefile.Durable)
}

// load reads the claims of an earlier agent.
func (m *Manager) load() error {
	path := filepath.Join(m.opts.Root, recordFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var all []*claim
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		return fmt.Errorf("prepared resource claims: %s: %w; remove the file, and drivers prepare the claims of pods again", path, err)
	}
	for _, c := range all {
		if c != nil && c.Pods != nil {
			m.claims[c.key()] = c
		}
	}
	return nil
}
