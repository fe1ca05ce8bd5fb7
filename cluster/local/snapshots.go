package local

import (
	"cmp"
	"fmt"
	"path/filepath"
	"time"
)

// SnapshotSettings say when a cluster saves snapshots by itself.
type SnapshotSettings struct {
	// Every is the time from one snapshot to the next, as text ("6h"); "" means that there are none. NoSnapshots
	// takes a stored one back.
	Every string `json:"every,omitempty"`

	// Keep is how many of them there are at most; 0 means DefaultSnapshots.
	Keep int `json:"keep,omitempty"`

	// Dir is the absolute path of the directory; "" means [Profile.Snapshots]. NoSnapshots takes a stored one back.
	Dir string `json:"dir,omitempty"`
}

// NoSnapshots is the value that takes a stored setting of snapshots back.
const NoSnapshots = "none"

// DefaultSnapshots is how many scheduled snapshots are kept by default.
const DefaultSnapshots = 5

// shortestEvery is the smallest time between snapshots.
const shortestEvery = time.Minute

// MaxAncestors is how many ancestors of a cluster are recorded.
const MaxAncestors = 64

// DescendFrom records that the cluster is made from the one with that ID, which had these settings.
func (s *Settings) DescendFrom(id string, of Settings) {
	s.Ancestors = append([]string{id}, of.Ancestors...)
	s.Ancestors = s.Ancestors[:min(len(s.Ancestors), MaxAncestors)]
}

// with returns saved settings with the wanted ones of this time.
func (s SnapshotSettings) with(asked SnapshotSettings) SnapshotSettings {
	return SnapshotSettings{
		Every: kept(s.Every, asked.Every, NoSnapshots), Keep: cmp.Or(asked.Keep, s.Keep), Dir: kept(s.Dir, asked.Dir, NoSnapshots),
	}
}

// Period returns the time from one snapshot to the next; 0 means that there are none.
func (s SnapshotSettings) Period() time.Duration {
	d, err := time.ParseDuration(s.Every)
	if err != nil {
		return 0
	}
	return d
}

// Count returns how many snapshots are kept.
func (s SnapshotSettings) Count() int { return cmp.Or(s.Keep, DefaultSnapshots) }

// check returns an error for values that a setting can't have.
func (s SnapshotSettings) check() error {
	if s.Every != "" && s.Every != NoSnapshots {
		if d, err := time.ParseDuration(s.Every); err != nil || d < shortestEvery {
			return fmt.Errorf("--snapshot-every: must be a duration >= %v, such as 6h, or %s, got %q", shortestEvery, NoSnapshots, s.Every)
		}
	}
	if s.Keep < 0 {
		return fmt.Errorf("--snapshot-keep: must be a number >= 1, got %d", s.Keep)
	}
	if s.Dir != "" && s.Dir != NoSnapshots && !filepath.IsAbs(s.Dir) {
		return fmt.Errorf("--snapshot-dir: must be an absolute path, got %q", s.Dir)
	}
	return nil
}

// Snapshots returns the directory of the cluster's snapshots, unless a setting names another one.
func (p Profile) Snapshots() string { return filepath.Join(p.DataDir, "snapshots") }

// SnapshotDir returns the directory of the cluster's snapshots by its saved settings.
func (p Profile) SnapshotDir() (string, error) {
	s, err := p.SnapshotPlan()
	return s.Dir, err
}

// SnapshotPlan returns the saved settings of the cluster's snapshots, with their directory.
func (p Profile) SnapshotPlan() (SnapshotSettings, error) {
	s, _, err := p.savedSettings()
	s.Snapshots.Dir = cmp.Or(s.Snapshots.Dir, p.Snapshots())
	return s.Snapshots, err
}
