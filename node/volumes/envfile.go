package volumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/volume"
)

// podFiles reads files in the volumes of a pod, as [crispec.Files]. Containers write them: reading ends with ctx.
type podFiles struct {
	ctx   context.Context //nolint:containedctx // of one call, which has no other way to it
	files *Files
	pod   *corev1.Pod
}

// Reader returns the files in the volumes of a pod for its environment.
func (f *Files) Reader(ctx context.Context, pod *corev1.Pod) crispec.Files {
	return podFiles{ctx, f, pod}
}

// Kept reports whether pods have files at all: with a simulated runtime they have none.
func (f *Files) Kept() bool { return f.root != "" }

// Open opens a file in an emptyDir; the API server allows no volumes of other types. Errors are kubelet's: the details are in the log.
func (p podFiles) Open(name, path string) (io.ReadCloser, string, error) {
	i := slices.IndexFunc(p.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	switch {
	case i < 0:
		return nil, "", fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", name)
	case !volume.Used(&p.pod.Spec)[name]: // kubelets do not make such volumes either
		return nil, "", fmt.Errorf("cannot find the volume %q referenced by FileKeyRef: no container of the pod mounts it", name)
	}
	dir := p.files.Path(p.pod, &p.pod.Spec.Volumes[i])
	file, err := volume.Read(dir, path)
	if err != nil {
		p.files.node.Log.Warn("file of environment variables not read", "pod", p.pod.Namespace+"/"+p.pod.Name, "volume", name, "path", path, "err", err)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, "", fs.ErrNotExist
		}
		return nil, "", fmt.Errorf("couldn't parse env file %q of volume %q: it cannot be read", path, name)
	}
	return &limitedFile{p.ctx, file}, filepath.Join(dir, path), nil
}

// A limitedFile can be read until its context is cancelled.
type limitedFile struct {
	ctx context.Context //nolint:containedctx // see podFiles
	io.ReadCloser
}

func (f *limitedFile) Read(b []byte) (int, error) {
	if f.ctx.Err() != nil {
		return 0, context.Cause(f.ctx)
	}
	return f.ReadCloser.Read(b)
}
