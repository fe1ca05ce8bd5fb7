//go:build !linux

package dns

import "errors"

func forceBuffer(uintptr) error { return errors.ErrUnsupported }
