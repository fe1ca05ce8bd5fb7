package container

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sampan-io/sampan/internal/wholefile"
)

// Edits are what devices of the Container Device Interface add to a container, beside variables and groups.
type Edits struct {
	Mounts     []specs.Mount                   `json:",omitempty"` // one with the same destination as another mount replaces it
	Devices    []specs.LinuxDevice             `json:",omitempty"`
	Rules      []specs.LinuxDeviceCgroup       `json:",omitempty"` // which devices it may use
	NetDevices map[string]specs.LinuxNetDevice `json:",omitempty"` // moved into its network namespace
	IntelRdt   *specs.LinuxIntelRdt            `json:",omitempty"`
	Hooks      *specs.Hooks                    `json:",omitempty"`
}

// apply adds the edits to the configuration of a container.
func (e *Edits) apply(oci *specs.Spec) {
	if e == nil {
		return
	}
	for _, m := range e.Mounts {
		m.Destination = path.Clean(m.Destination)
		oci.Mounts = append(slices.DeleteFunc(oci.Mounts, func(o specs.Mount) bool { return o.Destination == m.Destination }), m)
	}
	sortMounts(oci.Mounts)
	for _, d := range e.Devices {
		oci.Linux.Devices = append(slices.DeleteFunc(oci.Linux.Devices, func(o specs.LinuxDevice) bool { return o.Path == d.Path }), d)
	}
	oci.Linux.Resources.Devices = append(oci.Linux.Resources.Devices, e.Rules...)
	oci.Linux.NetDevices, oci.Linux.IntelRdt, oci.Hooks = maps.Clone(e.NetDevices), e.IntelRdt, e.Hooks
}

// bundle writes the configuration of a container with hooks into its directory: hooks read it there, as they do with other
// runtimes.
func (e *Edits) bundle(dir string, oci *specs.Spec, config *configs.Config) error {
	if e == nil || e.Hooks == nil {
		return nil
	}
	data, err := json.Marshal(oci)
	if err != nil {
		return fmt.Errorf("container configuration: %w", err)
	}
	config.Labels = append(slices.DeleteFunc(config.Labels, func(l string) bool { return strings.HasPrefix(l, "bundle=") }), "bundle="+dir)
	return wholefile.Write(path.Join(dir, "config.json"), data, 0o600, wholefile.UntilBoot)
}
