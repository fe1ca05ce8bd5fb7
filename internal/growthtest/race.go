//go:build race

package growthtest

// Raced says that the race detector is on, which makes work five times slower.
const Raced = true
