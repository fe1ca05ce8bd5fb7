// Package mounts mounts file systems by mount(8), and unmounts everything below a directory, so that its removal does not delete
// mounted files.
package mounts

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/sampan-io/sampan/internal/oomscore"
)

// UnmountBelow unmounts everything that is mounted at dir or below it, the newest first. A directory that does not exist
// has no mounts. It returns an error for each mount that is in use.
func UnmountBelow(dir string) error { return unmountBelow(dir, true, 0, 0) }

// UnmountInside is UnmountBelow, except that a mount at dir itself stays.
func UnmountInside(dir string) error { return unmountBelow(dir, false, 0, 0) }

// DetachBelow is UnmountBelow, except that a mount in use is only removed from the directory tree: its users keep it.
func DetachBelow(dir string) error { return unmountBelow(dir, true, detach, detach) }

// DetachTop is UnmountBelow, except that a mount at dir itself that is in use is only removed from the directory tree. It stays if there is an
// error for a mount below it.
func DetachTop(dir string) error { return unmountBelow(dir, true, detach, 0) }

// Mount calls mount(8). No argument may begin with a dash. Errors are in kubelet's words.
func Mount(ctx context.Context, fsType string, options []string, source, dir string) error {
	args := []string{"-t", fsType}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	args = append(args, source, dir)
	out, err := oomscore.CombinedOutput(exec.CommandContext(ctx, "mount", args...)) // no shell
	if err != nil {
		return fmt.Errorf("mount failed: %w\nMounting command: mount\nMounting arguments: %s\nOutput: %s", err, strings.Join(args, " "), out)
	}
	return nil
}
