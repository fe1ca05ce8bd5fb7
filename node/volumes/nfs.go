package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/mounts"
)

// mountNFS mounts an export at dir, unless something is mounted there.
func mountNFS(ctx context.Context, s *corev1.NFSVolumeSource, options []string, dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	mounted, err := mountinfo.Mounted(dir)
	if err != nil || mounted {
		return err
	}
	if _, err := exec.LookPath("mount.nfs"); err != nil {
		return errors.New("NFS volumes need the program mount.nfs on the node: install the package nfs-common or nfs-utils")
	}
	switch {
	case s.Server == "" || strings.HasPrefix(s.Server, "-") || strings.ContainsAny(s.Server, " \t\n\x00"):
		return fmt.Errorf("server %q is not a host name or an address", s.Server)
	case !filepath.IsAbs(s.Path) || strings.ContainsRune(s.Path, 0):
		return fmt.Errorf("path %q is not absolute", s.Path)
	}
	server := s.Server
	if strings.Contains(server, ":") && !strings.HasPrefix(server, "[") {
		server = "[" + server + "]"
	}
	if s.ReadOnly {
		options = append(options, "ro")
	}
	return mounts.Mount(ctx, "nfs", options, server+":"+s.Path, dir)
}
