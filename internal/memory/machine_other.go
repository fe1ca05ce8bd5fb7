//go:build !linux && !darwin

package memory

// Machine returns 0: the size of the memory is not known.
func Machine() uint64 { return 0 }
