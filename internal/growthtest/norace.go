//go:build !race

package growthtest

// raced says whether the race detector is on.
const raced = false
