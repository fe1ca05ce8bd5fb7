package runtime

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/runtime/container"
)

// A listener that is this many events behind is disconnected and has to list again.
const backlog = 1024

// hub sends every change to every listener (R5).
type hub struct {
	server *Server

	mu        sync.Mutex
	listeners map[*listener]bool // guarded by mu; nil once closed
}

// listener is one open stream of events.
type listener struct {
	queue  chan *cri.ContainerEventResponse // closed by the hub, when it is full or at the end
	behind bool                             // set before queue is closed
}

func newHub(s *Server) *hub { return &hub{server: s, listeners: map[*listener]bool{}} }

// publish sends a change of the pod or container with this id. Events of one pod are
// built under the lock of the hub, so each shows the state at the time when it is sent.
func (h *hub) publish(kind cri.ContainerEventType, id, podID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.listeners) == 0 {
		return
	}
	event := &cri.ContainerEventResponse{ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano()}
	event.PodSandboxStatus, event.ContainersStatuses = h.server.podAndContainers(podID)
	for l := range h.listeners {
		select {
		case l.queue <- event:
		default:
			l.behind = true
			close(l.queue)
			delete(h.listeners, l)
		}
	}
}

func (h *hub) listen() *listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &listener{queue: make(chan *cri.ContainerEventResponse, backlog)}
	if h.listeners == nil {
		close(l.queue)
		return l
	}
	h.listeners[l] = true
	return l
}

func (h *hub) leave(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, l)
}

// close ends all streams.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		close(l.queue)
	}
	h.listeners = nil
}

// GetContainerEvents implements CRI. The stream carries the events after the call was
// accepted; a header is sent at once to show that: a client that lists after it misses
// no event. A listener that doesn't read fast enough gets ResourceExhausted and must
// listen and list again.
func (s *Server) GetContainerEvents(_ *cri.GetEventsRequest, stream grpc.ServerStreamingServer[cri.ContainerEventResponse]) error {
	l := s.events.listen()
	defer s.events.leave(l)
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		select {
		case event, ok := <-l.queue:
			switch {
			case !ok && l.behind:
				return status.Errorf(codes.ResourceExhausted, "more than %d events were not read: listen again, then list", backlog)
			case !ok:
				return status.Error(codes.Unavailable, "the runtime is being stopped or restarted")
			}
			if err := stream.Send(event); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// containerChanged is called by the supervisor.
func (s *Server) containerChanged(c container.Change) {
	if p := s.pauses(c.ID); p != nil {
		if c.Step == container.StepStopped {
			// With process 1 the kernel ends every process of the namespace, and no other can be started in it.
			if err := s.setNotReady(p); err != nil {
				s.opts.Log.Error("the end of a pod's first process couldn't be recorded", "pod", p.record.ID, "err", err)
			}
		}
		return
	}
	kinds := map[container.Step]cri.ContainerEventType{
		container.StepCreated: cri.ContainerEventType_CONTAINER_CREATED_EVENT,
		container.StepStarted: cri.ContainerEventType_CONTAINER_STARTED_EVENT,
		container.StepStopped: cri.ContainerEventType_CONTAINER_STOPPED_EVENT,
		container.StepDeleted: cri.ContainerEventType_CONTAINER_DELETED_EVENT,
	}
	s.events.publish(kinds[c.Step], c.ID, c.Record.Pod)
}
