//go:build !linux || portable

package memory

// programPages are the mappings of the program's own file, which are left to the system.
type programPages struct{}

func (*programPages) forget() error { return nil }
