//go:build !linux || portable

package blockdevice

import (
	"context"
	"errors"
)

// A Mounter mounts nothing: only Linux mounts devices for pods.
type Mounter struct{}

// New returns a mounter.
func New(string) *Mounter { return &Mounter{} }

// Mount is not supported.
func (*Mounter) Mount(context.Context, Request) error { return errors.ErrUnsupported }

// Expand is not supported.
func Expand(Request) error { return errors.ErrUnsupported }
