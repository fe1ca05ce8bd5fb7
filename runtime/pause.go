package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/runtime/container"
)

const (
	// pauseUser is the user of the pause process, as in the pause image of Kubernetes.
	pauseUser = 65535
	// pauseOOMScoreAdj makes the kernel choose every container of the pod first, as
	// in other runtimes.
	pauseOOMScoreAdj = -998
)

// pause starts the container that holds the PID namespace of a pod: a program that
// does nothing, in a root file system with nothing else, without any right.
func (s *Server) pause(ctx context.Context, p *pod) error {
	r := p.snapshot()
	program, err := container.PauseProgram()
	if err != nil {
		return err
	}
	rootfs := p.file("pause")
	if err := os.Mkdir(rootfs, 0o755); err != nil {
		return fmt.Errorf("process namespace of the pod: %w", err)
	}
	// A file system of its own, because the one of the state directory may be mounted noexec, as /run often is.
	if err := unix.Mount("pause", rootfs, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=64k"); err != nil {
		return fmt.Errorf("process namespace of the pod: %w", err)
	}
	if err := p.own("pause"); err != nil { // directories to mount on are made in it
		return fmt.Errorf("process namespace of the pod: %w", err)
	}
	if err := os.WriteFile(filepath.Join(rootfs, "pause"), program, 0o555); err != nil {
		return fmt.Errorf("process namespace of the pod: %w", err)
	}
	spec := container.Spec{
		Rootfs: rootfs, Args: []string{"/pause"}, User: container.User{UID: pauseUser, GID: pauseUser},
		NetNS: r.Pins.Net, IPCNS: r.Pins.IPC, UTSNS: r.Pins.UTS,
		UserNS: r.Pins.User, Users: deref(r.Users),
		NoNewPrivileges: true, DropCaps: []string{"ALL"},
		Cgroup: filepath.Join(r.Cgroup, r.Pause), Resources: container.Resources{OOMScoreAdj: pauseOOMScoreAdj},
	}
	if err := s.supervisor.Create(container.Record{ID: r.Pause, Pod: r.ID, Spec: spec}); err != nil {
		return fmt.Errorf("process namespace of the pod: %w", err)
	}
	if err := s.supervisor.Start(ctx, r.Pause); err != nil {
		return fmt.Errorf("process namespace of the pod: %w", err)
	}
	made, err := s.supervisor.Get(r.Pause)
	if err != nil {
		return err
	}
	return container.PinPID(made.Pid, p.file("pid"))
}

// removePause ends the pod's PID namespace, if it has one.
func (s *Server) removePause(ctx context.Context, r *podRecord, p *pod) error {
	if r.Pause == "" {
		return nil
	}
	errs := []error{container.Unpin(container.Pins{PID: p.file("pid")}), s.supervisor.Remove(ctx, r.Pause)}
	err := unix.Unmount(p.file("pause"), unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		errs = append(errs, fmt.Errorf("process namespace of the pod: %w", err))
	}
	return errors.Join(errs...)
}

// pauses returns the pod whose PID namespace the container with this id holds, or
// nil.
func (s *Server) pauses(id string) *pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pauseOf[id]
}

// pidNamespace returns the path of the PID namespace that a container shares with
// its pod, or "".
func (s *Server) pidNamespace(r *podRecord, ns *cri.NamespaceOption) string {
	if r.Pause == "" || ns.GetPid() != cri.NamespaceMode_POD {
		return ""
	}
	return filepath.Join(s.podDir(r.ID), "pid")
}

// pidTarget returns the id of the container whose processes a container sees, or "".
func (s *Server) pidTarget(r *podRecord, ns *cri.NamespaceOption) (string, error) {
	if ns.GetPid() != cri.NamespaceMode_TARGET {
		return "", nil
	}
	target, err := s.supervisor.Get(ns.GetTargetId())
	switch {
	case err != nil || target.Pod != r.ID || s.pauses(target.ID) != nil:
		return "", invalid("invalid target container: %q is not a container of pod sandbox %s", ns.GetTargetId(), r.ID)
	case target.State() != container.Running:
		return "", invalid("invalid target container: %q is not running - in state %s", target.ID, containerState(&target))
	}
	return target.ID, nil
}

func deref(m *container.IDMap) container.IDMap {
	if m == nil {
		return container.IDMap{}
	}
	return *m
}
