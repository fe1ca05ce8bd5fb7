package declared

import (
	"maps"
	"slices"
)

// Gates returns the names of the feature gates that have a default.
func Gates() []string { return slices.Sorted(maps.Keys(gates)) }
