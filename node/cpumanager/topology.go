package cpumanager

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/utils/cpuset"
)

// Directory is where Linux describes the processors of a machine.
const Directory = "/sys/devices/system/cpu"

// Online returns the processors that a directory such as [Directory] calls online. A process may be limited to fewer.
func Online(dir string) (cpuset.CPUSet, error) { return read(filepath.Join(dir, "online")) }

func read(file string) (cpuset.CPUSet, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return cpuset.CPUSet{}, fmt.Errorf("processors of the machine: %w", err)
	}
	set, err := cpuset.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return cpuset.CPUSet{}, fmt.Errorf("processors of the machine: %s: %w", file, err)
	}
	return set, nil
}
