//go:build !linux || portable

package mounts

import "errors"

// Without a real node nothing is mounted.
const (
	detach = 0

	NoSetuid   = 0
	NoDevices  = 0
	NoPrograms = 0
)

func unmountBelow(string, bool, int, int) error { return nil }

// New is not supported.
func New(string, string, uintptr, string) error { return errors.ErrUnsupported }

// Bind is not supported.
func Bind(string, string) error { return errors.ErrUnsupported }

// Share is not supported.
func Share(string) error { return errors.ErrUnsupported }

// Detach is not supported.
func Detach(string) error { return errors.ErrUnsupported }
