//go:build !linux

package snapshots

import "os"

// exchange exchanges two directories. A crash in the middle leaves the second one under another name.
func exchange(a, b string) error {
	between := b + ".exchange"
	if err := os.Rename(b, between); err != nil {
		return err
	}
	if err := os.Rename(a, b); err != nil {
		return err
	}
	return os.Rename(between, a)
}
