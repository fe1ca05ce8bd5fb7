//go:build !linux || portable

package podcgroup

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A Tree cannot be made: only Linux has cgroups.
type Tree struct{}

// Open is not supported.
func Open(string, *cri.LinuxContainerResources, int64) (*Tree, error) {
	return nil, errors.ErrUnsupported
}

// Find returns "".
func Find(string) string { return "" }

// Unified reports false.
func Unified() bool { return false }

// LimitsProcessors reports false.
func LimitsProcessors(string) bool { return false }

// LimitsSwap reports false.
func LimitsSwap(string) bool { return false }

// Path returns "".
func (*Tree) Path(types.UID, corev1.PodQOSClass) string { return "" }

// Set is not supported.
func (*Tree) Set(types.UID, corev1.PodQOSClass, *cri.LinuxContainerResources, int64) error {
	return errors.ErrUnsupported
}

// Remove is not supported.
func (*Tree) Remove(types.UID) error { return errors.ErrUnsupported }

// Protected returns 0.
func (*Tree) Protected() (hard, soft int64) { return 0, 0 }
