//go:build !unix

package filelock

import (
	"errors"
	"os"
)

// Lock is not supported.
func Lock(*os.File) error { return errors.ErrUnsupported }

// Share is not supported.
func Share(*os.File) error { return errors.ErrUnsupported }

// TryLock is not supported.
func TryLock(*os.File) error { return errors.ErrUnsupported }

// TryShare is not supported.
func TryShare(*os.File) error { return errors.ErrUnsupported }
