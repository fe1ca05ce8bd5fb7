package cpumanager

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/sampan-io/sampan/internal/sorting"
)

// Directory is where Linux describes the processors of a machine.
const Directory = "/sys/devices/system/cpu"

// Online returns the processors that a directory such as [Directory] calls online. A process may be limited to fewer.
func Online(dir string) (cpuset.CPUSet, error) { return read(filepath.Join(dir, "online")) }

// A Topology is the processors of a machine, and which of them are close to each other.
type Topology struct {
	Online cpuset.CPUSet

	cores, sockets map[int]cpuset.CPUSet // the online processors of the core, and of the socket, of a processor
}

// Discover reads a directory such as [Directory].
func Discover(dir string) (Topology, error) {
	t := Topology{cores: map[int]cpuset.CPUSet{}, sockets: map[int]cpuset.CPUSet{}}
	var err error
	if t.Online, err = Online(dir); err != nil {
		return t, err
	}
	for _, cpu := range t.Online.UnsortedList() {
		for file, to := range map[string]map[int]cpuset.CPUSet{"thread_siblings_list": t.cores, "core_siblings_list": t.sockets} {
			siblings, err := read(filepath.Join(dir, fmt.Sprintf("cpu%d", cpu), "topology", file))
			if err != nil { // kernels of a few machines do not know
				siblings = cpuset.New(cpu)
			}
			to[cpu] = siblings.Intersection(t.Online)
		}
	}
	return t, nil
}

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

// threads returns how many processors a core has.
func (t Topology) threads() int {
	most := 1
	for _, core := range t.cores {
		most = max(most, core.Size())
	}
	return most
}

// coresOf returns all processors of the cores of a few processors.
func (t Topology) coresOf(cpus cpuset.CPUSet) cpuset.CPUSet {
	var all cpuset.CPUSet
	for _, cpu := range cpus.UnsortedList() {
		all = all.Union(t.cores[cpu])
	}
	return all
}

// take returns n of the free processors, which must be as many: of one socket if one has as many, whole cores first, and for the
// rest those of cores that others use already.
func (t Topology) take(free cpuset.CPUSet, n int) cpuset.CPUSet {
	near := free
	for _, cpu := range free.List() {
		if s := free.Intersection(t.sockets[cpu]); s.Size() >= n && s.Size() < near.Size() {
			near = s
		}
	}
	var got cpuset.CPUSet
	for _, cpu := range near.List() {
		if core := t.cores[cpu]; core.IsSubsetOf(near.Difference(got)) && core.Size() <= n-got.Size() {
			got = got.Union(core)
		}
	}
	rest := near.Difference(got).List()
	left := func(cpu int) int { return t.cores[cpu].Intersection(near).Size() }
	sorting.Stable(rest, func(a, b int) int { return cmp.Compare(left(a), left(b)) })
	return got.Union(cpuset.New(rest[:n-got.Size()]...))
}
