//go:build !linux || portable

package disk

import (
	"errors"
	"os"
)

// fdatasync makes the contents of f durable.
func fdatasync(f *os.File) error { return f.Sync() }

// allocate is not supported: the zeros that are written take the space.
func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
