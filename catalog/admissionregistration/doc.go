// Package admissionregistration describes the kinds of the group admissionregistration.k8s.io, version v1: what checks and
// changes writes beside the plug-ins of the API server.
package admissionregistration

import (
	"slices"

	"github.com/sampan-io/sampan/catalog"
)

// Kinds returns the kinds of the group.
func Kinds() []*catalog.Kind { return slices.Concat(webhooks(), policies()) }
