package local

import (
	"fmt"
	"time"
)

// An Expiry says when a cluster ends by itself and is removed with its data.
type Expiry struct {
	// After is the time from the start that it was passed at until the end, as text ("1h"); "" means that the cluster
	// does not expire. NoExpiry takes a stored one back.
	After string `json:"after,omitempty"`

	// At is when the cluster expires, however often it is started again until then. It follows from After.
	At time.Time `json:"at,omitzero"`
}

// NoExpiry is the value of After that takes a stored one back.
const NoExpiry = "none"

// shortestExpiry is the shortest life of a cluster.
const shortestExpiry = time.Second

// longestExpiry is about the longest duration that Go has.
const longestExpiry = "2562047h"

// with returns a saved expiry with the one that is asked for at a start now.
func (e Expiry) with(asked Expiry, now time.Time) Expiry {
	switch asked.After {
	case "":
		return e
	case NoExpiry:
		return Expiry{}
	}
	d, err := time.ParseDuration(asked.After)
	if err != nil {
		return e // check refuses it
	}
	return Expiry{After: asked.After, At: now.Add(d).UTC()}
}

// check returns an error for a value that After can't have.
func (e Expiry) check() error {
	if e.After == "" || e.After == NoExpiry {
		return nil
	}
	if d, err := time.ParseDuration(e.After); err != nil || d < shortestExpiry {
		return fmt.Errorf("--expires: must be a duration >= %v and <= %s, such as 1h, or %s, got %q", shortestExpiry, longestExpiry, NoExpiry, e.After)
	}
	return nil
}

// Expired reports whether the cluster has expired.
func (e Expiry) Expired(now time.Time) bool { return !e.At.IsZero() && !now.Before(e.At) }

// Expiry returns the saved settings of the cluster's expiry.
func (p Profile) Expiry() (Expiry, error) {
	s, _, err := p.savedSettings()
	return s.Expiry, err
}

// CheckExpired returns an error with advice if the cluster with these settings has expired. Clusters is how many are
// started together, 0 for one alone.
func (p Profile) CheckExpired(s Settings, clusters int, now time.Time) error {
	if !s.Expiry.Expired(now) {
		return nil
	}
	remove, keep := "--name="+p.Name, "--name="+p.Name
	if clusters > 0 {
		remove, keep = "--clusters --name="+s.Fleet, fmt.Sprintf("--clusters=%d --name=%s", clusters, s.Fleet)
	}
	return fmt.Errorf("cluster %s expired at %s, and was not running then, so its data is still in %s: "+
		"`sampan down --purge %s` removes it, and `sampan up %s --expires=%s` keeps it",
		p.Name, s.Expiry.At.Format(time.RFC3339), p.DataDir, remove, keep, NoExpiry)
}
