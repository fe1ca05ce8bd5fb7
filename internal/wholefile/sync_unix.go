//go:build !windows

package wholefile

import "os"

// syncFolder makes the names in a folder durable.
func syncFolder(dir *os.File) error { return dir.Sync() }
