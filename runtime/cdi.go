package runtime

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/sampan-io/sampan/runtime/container"
)

// Devices of the Container Device Interface (CDI) have names such as vendor.com/class=name. What a container with such a device
// gets is in files that the device's vendor or driver writes. They are read when a container is created: a driver may have
// written one a moment before.

// cdiDevices returns the names of a container's devices. As with containerd, they may also be in annotations, in which older
// device plug-ins have them.
func cdiDevices(c *cri.ContainerConfig) ([]string, error) {
	var names []string
	for _, d := range c.GetCDIDevices() {
		names = append(names, d.GetName())
	}
	_, annotated, err := cdi.ParseAnnotations(c.GetAnnotations())
	if err != nil {
		return nil, invalid("container %q: failed to parse CDI device annotations: %v", c.GetMetadata().GetName(), err)
	}
	for _, name := range annotated {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// injectDevices adds to a container what its devices need. The errors have containerd's words.
func (s *Server) injectDevices(spec *container.Spec, c *cri.ContainerConfig) error {
	names, err := cdiDevices(c)
	if err != nil || len(names) == 0 {
		return err
	}
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(s.opts.DeviceDirs...))
	if err != nil {
		return invalid("container %q: failed to create CDI registry: %v", c.GetMetadata().GetName(), err)
	}
	oci := &specs.Spec{
		Process: &specs.Process{Env: spec.Env, User: specs.User{UID: spec.User.UID, GID: spec.User.GID, AdditionalGids: spec.User.Groups}},
		Linux:   &specs.Linux{Resources: &specs.LinuxResources{}},
	}
	if spec.UserNS != "" {
		oci.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.UserNamespace, Path: spec.UserNS}}
	}
	if _, err := cache.InjectDevices(oci, names...); err != nil {
		if faults := fileFaults(cache, names); faults != "" {
			return invalid("container %q: CDI device injection failed: %v (%s)", c.GetMetadata().GetName(), err, faults)
		}
		return invalid("container %q: CDI device injection failed: %v", c.GetMetadata().GetName(), err)
	}
	s.translate(oci)
	spec.Env, spec.User.Groups = oci.Process.Env, oci.Process.User.AdditionalGids
	spec.Edits = &container.Edits{
		Mounts: oci.Mounts, Devices: oci.Linux.Devices, Rules: oci.Linux.Resources.Devices,
		NetDevices: oci.Linux.NetDevices, IntelRdt: oci.Linux.IntelRdt, Hooks: oci.Hooks,
	}
	return nil
}

// kubeletDir is the directory of which drivers of devices name paths in the files that they write.
const kubeletDir = "/var/lib/kubelet"

// translate replaces paths on the machine in kubeletDir by those in Options.KubeletDir.
func (s *Server) translate(oci *specs.Spec) {
	if s.opts.KubeletDir == "" {
		return
	}
	translate := func(path *string) { *path = translated(*path, s.opts.KubeletDir, exists) }
	for i := range oci.Mounts {
		translate(&oci.Mounts[i].Source)
	}
	if h := oci.Hooks; h != nil { // the programs of StartContainer are in the container
		for _, hooks := range [][]specs.Hook{h.Prestart, h.CreateRuntime, h.CreateContainer, h.Poststart, h.Poststop} { //nolint:staticcheck // files may have prestart
			for i := range hooks {
				translate(&hooks[i].Path)
			}
		}
	}
}

// translated returns the path in dir of one in kubeletDir, unless only the latter exists: the file of a device may have been written by
// a program on the machine, whose paths mean what they say. Other paths stay.
func translated(path, dir string, exists func(string) bool) string {
	rest, in := strings.CutPrefix(filepath.Clean(path), kubeletDir+"/")
	if !in {
		return path
	}
	if own := filepath.Join(dir, rest); exists(own) || !exists(path) {
		return own
	}
	return path
}

// exists reports whether there is a file or directory at a path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// fileFaults returns what is wrong with the files of the vendors of devices.
func fileFaults(cache *cdi.Cache, names []string) string {
	var faults []string
	for path, errs := range cache.GetErrors() {
		for _, err := range errs {
			if slices.ContainsFunc(names, func(name string) bool {
				vendor, _, _ := strings.Cut(name, "/")
				return strings.Contains(path, vendor)
			}) {
				faults = append(faults, err.Error())
			}
		}
	}
	slices.Sort(faults)
	return strings.Join(slices.Compact(faults), "; ")
}
