package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Used returns the names of the volumes that containers of the pod mount, or use as devices. A kubelet ignores the others.
func Used(spec *corev1.PodSpec) map[string]bool {
	used := map[string]bool{}
	for c := range containers(spec) {
		for _, m := range c.VolumeMounts {
			used[m.Name] = true
		}
		for _, d := range c.VolumeDevices {
			used[d.Name] = true
		}
	}
	return used
}

// containers yields the containers of a pod of all kinds.
func containers(spec *corev1.PodSpec) func(yield func(*corev1.Container) bool) {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
		for i := range spec.EphemeralContainers {
			c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(&c) {
				return
			}
		}
	}
}

// MakeMountPoints makes directories in the volume at dir for the mounts that a container has below a mount of the whole volume or of a part
// of it, as kubelet does for volumes that containers can't write: the runtime could not make them. It makes none in place of a file
// of p that a part of another volume is mounted over, because that may be a file, too.
func MakeMountPoints(dir string, spec *corev1.PodSpec, name string, p Payload) error {
	points := mountPoints(spec, name, p)
	if len(points) == 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, path := range points {
		if err := root.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("unable to create nested volume mountpoints: %w", err) // kubelet's words
		}
	}
	return nil
}

// mountPoints returns the paths in a volume at which containers mount other volumes. It leaves out those below one of the same container.
func mountPoints(spec *corev1.PodSpec, name string, p Payload) []string {
	var points []string
	for c := range containers(spec) {
		for _, own := range c.VolumeMounts {
			if own.Name == name {
				points = append(points, pointsBelow(c.VolumeMounts, filepath.Clean(own.MountPath), p)...)
			}
		}
	}
	slices.Sort(points)
	return slices.Compact(points)
}

// pointsBelow returns the topmost paths below a path at which something is mounted, relative to it.
func pointsBelow(mounts []corev1.VolumeMount, path string, p Payload) []string {
	parts := map[string]bool{} // by path: whether a part of a volume is mounted there
	for _, m := range mounts {
		below, is := strings.CutPrefix(filepath.Clean(m.MountPath), strings.TrimSuffix(path, "/")+"/")
		if is && filepath.IsLocal(below) {
			parts[below] = m.SubPath != "" || m.SubPathExpr != ""
		}
	}
	var points []string
	for below, part := range parts {
		topmost := true
		for up := filepath.Dir(below); up != "."; up = filepath.Dir(up) {
			_, mounted := parts[up]
			topmost = topmost && !mounted
		}
		if _, file := p[below]; topmost && !(file && part) {
			points = append(points, below)
		}
	}
	return points
}
