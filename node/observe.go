package node

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/spec"
)

// seen is what the runtime holds for one pod.
type seen struct {
	sandboxes  []lifecycle.Sandbox
	containers []lifecycle.Container
}

// look asks the runtime for the sandboxes with the given IDs and all that is in
// them. One that is not there any more is left out.
func look(ctx context.Context, rt Runtime, ids []string) (seen, error) {
	var s seen
	for _, id := range ids {
		r, err := rt.PodSandboxStatus(ctx, id)
		if notFound(err) {
			continue
		}
		if err != nil {
			return s, fmt.Errorf("status of sandbox %s: %w", id, err)
		}
		s.sandboxes = append(s.sandboxes, sandboxOf(r.GetStatus()))
		statuses := r.GetContainersStatuses()
		if len(statuses) == 0 {
			// Either there are none, or this runtime tells of them elsewhere.
			if statuses, err = containersOf(ctx, rt, id); err != nil {
				return s, err
			}
		}
		for _, c := range statuses {
			s.containers = append(s.containers, containerOf(c, id))
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
		if notFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("status of container %s: %w", c.GetId(), err)
		}
		statuses = append(statuses, s)
	}
	return statuses, nil
}

func notFound(err error) bool { return status.Code(err) == codes.NotFound }

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

func containerOf(s *cri.ContainerStatus, sandbox string) lifecycle.Container {
	c := lifecycle.Container{
		ID: s.GetId(), Name: s.GetMetadata().GetName(), Attempt: int32(s.GetMetadata().GetAttempt()), Sandbox: sandbox,
		Hash:      s.GetAnnotations()[spec.ContainerHash],
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
		if m := terminationMessage(s); m != "" {
			c.Message = m
		}
	default:
		c.State = lifecycle.Unknown
	}
	return c
}

func nanos(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// What a container may leave as its last words, in Kubernetes' measure.
const (
	maxTerminationMessage = 4096
	maxTerminationLog     = 2048
	maxTerminationLines   = 80
)

// terminationMessage reads what the container wrote to its termination message
// file or, if its author asked for that and it failed, the end of its log.
func terminationMessage(s *cri.ContainerStatus) string {
	if file := s.GetAnnotations()[spec.TerminationFile]; file != "" {
		if text := tail(file, maxTerminationMessage, false); text != "" {
			return text
		}
	}
	if s.GetAnnotations()[spec.TerminationUse] == string(corev1.TerminationMessageFallbackToLogsOnError) && s.GetExitCode() != 0 && s.GetLogPath() != "" {
		return tail(s.GetLogPath(), maxTerminationLog, true)
	}
	return ""
}

// tail returns the last bytes of a file; of a log, its last lines as they were
// printed.
func tail(path string, limit int64, isLog bool) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	room := limit
	if isLog {
		room *= 2 // lines carry a time and a stream name
	}
	if st, err := f.Stat(); err == nil && st.Size() > room {
		if _, err := f.Seek(-room, 2); err != nil {
			return ""
		}
	}
	buf := make([]byte, room)
	n, _ := f.Read(buf)
	text := string(buf[:n])
	if !isLog {
		return strings.ToValidUTF8(text, "")
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	lines = lines[max(len(lines)-maxTerminationLines, 0):]
	var b strings.Builder
	for _, l := range lines {
		if fields := strings.SplitN(l, " ", 4); len(fields) == 4 {
			b.WriteString(fields[3])
			if fields[2] == string(cri.LogTagFull) {
				b.WriteByte('\n')
			}
		}
	}
	text = b.String()
	return strings.ToValidUTF8(text[max(len(text)-int(limit), 0):], "")
}
