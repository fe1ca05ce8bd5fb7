package criclient

import (
	"context"
	"errors"
	"io"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/crispec"
)

// A runtime without an event stream (containerd before 1.7; CRI-O unless it is configured) is asked for its containers
// instead: at pauses from firstPoll, which double up to lastPoll, the period of upstream's kubelet. A call that starts or
// ends something begins with the short pauses again. While no container runs and none is started nothing is asked.
const (
	firstPoll = 100 * time.Millisecond
	lastPoll  = time.Second
)

// noEvents reports whether an error that ended a stream of events before its first event says that there are none: that
// the call is unknown, or a stream that ends at once, as in CRI-O. One that ends later was ended by a restart.
func noEvents(err error, after time.Duration) bool {
	return status.Code(err) == codes.Unimplemented || errors.Is(err, io.EOF) && after < lastPoll
}

// A poller lists the pods and containers of a runtime and yields their changes as events.
type poller struct {
	c     *CRI
	known map[string]polled // by ID of the container or sandbox
}

type polled struct {
	uid   string // of the pod
	state int32
}

// poll yields changes until ctx is over, the caller leaves, or the runtime does not answer, which is yielded last. All
// pods that there are count as changed at first: the caller may have changed them since it was promised all events.
func (c *CRI) poll(ctx context.Context, yield func(*cri.ContainerEventResponse, error) bool) {
	p := poller{c: c}
	if !p.next(ctx, yield) {
		return
	}
	timer := time.NewTimer(firstPoll)
	defer timer.Stop()
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		if p.idle() {
			timer.Stop()
		} else {
			timer.Reset(pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.active:
			pause = firstPoll / 2 // doubled above
			timer.Reset(firstPoll)
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
		case <-timer.C:
		}
		if !p.next(ctx, yield) {
			return
		}
	}
}

// next lists once and yields the changes. It reports whether to go on.
func (p *poller) next(ctx context.Context, yield func(*cri.ContainerEventResponse, error) bool) bool {
	changed, err := p.list(ctx)
	if err != nil {
		yield(nil, err)
		return false
	}
	for _, uid := range changed {
		if !yield(eventOf(uid), nil) {
			return false
		}
	}
	return true
}

// idle reports whether nothing runs that could change by itself.
func (p *poller) idle() bool {
	for _, one := range p.known {
		if one.state == int32(cri.ContainerState_CONTAINER_RUNNING) {
			return false
		}
	}
	return true
}

// sandboxReady is the state of a sandbox that runs, as one of containers: it can end by itself.
const sandboxReady = int32(cri.ContainerState_CONTAINER_RUNNING)

// list reads the state of the runtime and returns the UIDs of the pods in which something changed.
func (p *poller) list(ctx context.Context) (changed []string, err error) {
	sandboxes, err := p.c.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, err
	}
	containers, err := p.c.ListContainers(ctx, nil)
	if err != nil {
		return nil, err
	}
	now := make(map[string]polled, len(sandboxes)+len(containers))
	for _, s := range sandboxes {
		state := int32(cri.ContainerState_CONTAINER_EXITED)
		if s.GetState() == cri.PodSandboxState_SANDBOX_READY {
			state = sandboxReady
		}
		now[s.GetId()] = polled{s.GetMetadata().GetUid(), state}
	}
	for _, c := range containers {
		uid := c.GetLabels()[crispec.PodUID]
		if uid == "" {
			uid = now[c.GetPodSandboxId()].uid
		}
		now[c.GetId()] = polled{uid, int32(c.GetState())}
	}
	seen := map[string]bool{}
	note := func(uid string) {
		if !seen[uid] {
			seen[uid] = true
			changed = append(changed, uid)
		}
	}
	for id, one := range now {
		if old, has := p.known[id]; !has || old != one {
			note(one.uid)
		}
	}
	for id, old := range p.known {
		if _, has := now[id]; !has {
			note(old.uid)
		}
	}
	p.known = now
	return changed, nil
}

func eventOf(uid string) *cri.ContainerEventResponse {
	return &cri.ContainerEventResponse{
		ContainerEventType: cri.ContainerEventType_CONTAINER_STOPPED_EVENT,
		PodSandboxStatus:   &cri.PodSandboxStatus{Metadata: &cri.PodSandboxMetadata{Uid: uid}},
	}
}

// watchCalls is a [grpc.UnaryClientInterceptor] that notes calls after which containers change.
func (c *CRI) watchCalls(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	switch path.Base(method) {
	case "RunPodSandbox", "StartContainer", "StopContainer", "StopPodSandbox":
		c.active.Ring()
	}
	return err
}
