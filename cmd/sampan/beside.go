//go:build !embed && unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// runtimeProgram finds the container runtime beside this program: it was built
// without one inside.
func runtimeProgram(string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), "sampan-runtime")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("this sampan was built without the container runtime, and %s does not exist; `make build` builds both, simulated nodes need none: `sampan down --purge`, then `sampan up --simulated-nodes=N`", path)
	}
	return path, nil
}
