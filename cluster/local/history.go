package local

import (
	"cmp"
	"fmt"
	"time"
)

// HistorySettings say which superseded states of objects a cluster keeps on disk.
type HistorySettings struct {
	// Keep is for how long, as text ("24h"); "" means that none are kept. NoHistory takes a stored one back.
	Keep string `json:"keep,omitempty"`

	// Max is how many bytes of files are kept at most, as text ("1Gi"); "" means DefaultHistoryMax.
	Max string `json:"max,omitempty"`
}

// NoHistory is the value that takes a stored setting of history back; "0" does as well.
const NoHistory = "none"

// DefaultHistoryMax is how large the history may become by default: with writes of 2 KiB, half a million of them.
const DefaultHistoryMax = "1Gi"

// leastHistory is the smallest size of the history, in bytes: the files that one fold replaces are 32 MiB and more.
const leastHistory = 128 << 20

// shortestHistory is the shortest time that can be kept.
const shortestHistory = time.Minute

// with returns saved settings with the wanted ones of this time.
func (s HistorySettings) with(asked HistorySettings) HistorySettings {
	if asked.Keep == "0" {
		asked.Keep = NoHistory
	}
	return HistorySettings{Keep: kept(s.Keep, asked.Keep, NoHistory), Max: cmp.Or(asked.Max, s.Max)}
}

// Window returns for how long superseded states are kept; 0 means that none are.
func (s HistorySettings) Window() time.Duration {
	d, err := time.ParseDuration(s.Keep)
	if err != nil {
		return 0
	}
	return d
}

// Bytes returns how large the history may become.
func (s HistorySettings) Bytes() int64 {
	bytes, err := parseSize(cmp.Or(s.Max, DefaultHistoryMax))
	if err != nil {
		return 0
	}
	return bytes
}

// History returns the saved settings of the cluster's history.
func (p Profile) History() (HistorySettings, error) {
	s, _, err := p.savedSettings()
	return s.History, err
}

// check returns an error for values that a setting can't have.
func (s HistorySettings) check() error {
	switch s.Keep {
	case "", "0", NoHistory:
	default:
		if d, err := time.ParseDuration(s.Keep); err != nil || d < shortestHistory {
			return fmt.Errorf("--history: must be a duration >= %v, such as 24h, or %s, got %q", shortestHistory, NoHistory, s.Keep)
		}
	}
	if s.Max != "" {
		if bytes, err := parseSize(s.Max); err != nil || bytes < leastHistory {
			return fmt.Errorf("--history-max: must be a size >= 128Mi and < 8Ei, such as 1Gi, got %q", s.Max)
		}
	}
	return nil
}
