package criclient

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/logs"
)

// State is the runtime's state of one pod.
type State struct {
	Sandboxes  []lifecycle.Sandbox
	Containers []lifecycle.Container
}

// Look reads the sandboxes with the given IDs and their containers from the runtime. A
// sandbox that does not exist any more is left out.
func Look(ctx context.Context, rt Runtime, ids []string) (State, error) {
	var s State
	for _, id := range ids {
		r, err := rt.PodSandboxStatus(ctx, id)
		if IsNotFound(err) {
			continue
		}
		if err != nil {
			return s, fmt.Errorf("status of sandbox %s: %w", id, err)
		}
		s.Sandboxes = append(s.Sandboxes, sandboxOf(r.GetStatus()))
		statuses := r.GetContainersStatuses()
		if len(statuses) == 0 {
			// Either there are none, or this runtime lists them in another call.
			if statuses, err = containersOf(ctx, rt, id); err != nil {
				return s, err
			}
		}
		for _, c := range statuses {
			s.Containers = append(s.Containers, containerOf(ctx, c, id))
		}
	}
	return s, nil
}

func containersOf(ctx context.Context, rt Runtime, sandbox string) ([]*cri.ContainerStatus, error) {
	list, err := rt.ListContainers(ctx, &cri.ContainerFilter{PodSandboxId: sandbox})
	if err != nil {
		return nil, fmt.Errorf("containers of sandbox %s: %w", sandbox, err)
	}
	var statuses []*cri.ContainerStatus
	for _, c := range list {
		s, err := rt.ContainerStatus(ctx, c.GetId())
		if IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("status of container %s: %w", c.GetId(), err)
		}
		statuses = append(statuses, s)
	}
	return statuses, nil
}

// IsNotFound reports whether a runtime has no such thing.
func IsNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// Message returns the message of a runtime's error, without the prefix that gRPC adds.
func Message(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}

func sandboxOf(s *cri.PodSandboxStatus) lifecycle.Sandbox {
	sb := lifecycle.Sandbox{
		ID: s.GetId(), Attempt: s.GetMetadata().GetAttempt(),
		Ready: s.GetState() == cri.PodSandboxState_SANDBOX_READY,
	}
	if ip := s.GetNetwork().GetIp(); ip != "" {
		sb.IPs = append(sb.IPs, ip)
	}
	for _, ip := range s.GetNetwork().GetAdditionalIps() {
		sb.IPs = append(sb.IPs, ip.GetIp())
	}
	return sb
}

func containerOf(ctx context.Context, s *cri.ContainerStatus, sandbox string) lifecycle.Container {
	c := lifecycle.Container{
		ID: s.GetId(), Name: s.GetMetadata().GetName(), Attempt: int32(s.GetMetadata().GetAttempt()), Sandbox: sandbox,
		Hash:      s.GetAnnotations()[crispec.ContainerHash],
		CreatedAt: nanos(s.GetCreatedAt()), StartedAt: nanos(s.GetStartedAt()), FinishedAt: nanos(s.GetFinishedAt()),
		ExitCode: s.GetExitCode(), Reason: s.GetReason(), Message: s.GetMessage(),
		Image: s.GetImage().GetUserSpecifiedImage(), ImageID: s.GetImageRef(),
	}
	if c.Image == "" {
		c.Image = s.GetImage().GetImage()
	}
	if c.ImageID == "" {
		c.ImageID = s.GetImageId()
	}
	if u := s.GetUser().GetLinux(); u != nil {
		c.User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: u.GetUid(), GID: u.GetGid(), SupplementalGroups: u.GetSupplementalGroups()}}
	}
	if r := s.GetResources().GetLinux(); r != nil {
		limits := LimitsOf(r)
		c.Limits = &limits
	}
	switch s.GetState() {
	case cri.ContainerState_CONTAINER_CREATED:
		c.State = lifecycle.Created
	case cri.ContainerState_CONTAINER_RUNNING:
		c.State = lifecycle.Running
	case cri.ContainerState_CONTAINER_EXITED:
		c.State = lifecycle.Exited
		if c.FinishedAt.IsZero() {
			c.FinishedAt = c.CreatedAt
		}
		if m := terminationMessage(ctx, s); m != "" {
			c.Message = m
		}
	default:
		c.State = lifecycle.Unknown
	}
	return c
}

// LimitsOf returns the part of the resources of a container that changes when the pod is resized. Values that mean no
// limit become 0, so that those asked of a runtime and those it reports can be compared.
func LimitsOf(r *cri.LinuxContainerResources) lifecycle.Limits {
	l := lifecycle.Limits{CPUShares: max(0, r.GetCpuShares()), Memory: max(0, r.GetMemoryLimitInBytes())}
	if r.GetCpuQuota() > 0 {
		l.CPUQuota, l.CPUPeriod = r.GetCpuQuota(), r.GetCpuPeriod()
	}
	return l
}

func nanos(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// Limits of termination messages, as in Kubernetes.
const (
	maxTerminationMessage = 4096
	maxTerminationLog     = 2048
	maxTerminationLines   = 80
)

// terminationMessage reads what the container wrote to its termination message
// file or, if its author asked for that and it failed, the end of its log.
func terminationMessage(ctx context.Context, s *cri.ContainerStatus) string {
	if file := s.GetAnnotations()[crispec.TerminationFile]; file != "" {
		if text := fileTail(file); text != "" {
			return text
		}
	}
	if s.GetAnnotations()[crispec.TerminationUse] == string(corev1.TerminationMessageFallbackToLogsOnError) && s.GetExitCode() != 0 && s.GetLogPath() != "" {
		return logTail(ctx, s.GetLogPath())
	}
	return ""
}

// logTail returns the end of a log as it was printed.
func logTail(ctx context.Context, path string) string {
	lines := int64(maxTerminationLines)
	out := &ending{limit: maxTerminationLog}
	if err := logs.Read(ctx, out, path, logs.Options{Tail: &lines}); err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(out.kept), "")
}

// ending is a writer that keeps the last bytes.
type ending struct {
	limit int
	kept  []byte
}

func (e *ending) Write(p []byte) (int, error) {
	e.kept = append(e.kept, p...)
	if over := len(e.kept) - e.limit; over > 0 {
		e.kept = append(e.kept[:0], e.kept[over:]...)
	}
	return len(p), nil
}

// fileTail returns the last bytes of a termination message file.
func fileTail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > maxTerminationMessage {
		if _, err := f.Seek(-maxTerminationMessage, io.SeekEnd); err != nil {
			return ""
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTerminationMessage))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(text), "")
}
