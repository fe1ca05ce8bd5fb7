package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/lifecycle"
)

// checkpointLimit is how long the runtime may take, unless the request allows it more time: kubelet's runtimeRequestTimeout.
const checkpointLimit = 2 * time.Minute

// A checkpointer is a [criclient.Runtime] that can write the state of a running container to a file.
type checkpointer interface {
	CheckpointContainer(ctx context.Context, req *cri.CheckpointContainerRequest) error
}

// checkpoint has the runtime write the state of a container to a file below RootDir, and answers with its path. Answers are those of
// upstream's kubelet, also for a runtime that can't do that: Sampan's can't.
func (k *Server) checkpoint(w http.ResponseWriter, r *http.Request) {
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	state, err := k.podOf(r)
	if err != nil {
		answer(w, err)
		return
	}
	if spec, _ := lifecycle.Spec(state.Pod, container); spec == nil {
		answer(w, refuse(http.StatusNotFound, "container %v does not exist", container))
		return
	}
	req := &cri.CheckpointContainerRequest{}
	if list := r.URL.Query()["timeout"]; len(list) > 0 {
		if req.Timeout, err = strconv.ParseInt(list[len(list)-1], 10, 64); err != nil {
			answer(w, refuse(http.StatusNotFound, "cannot parse value of timeout parameter"))
			return
		}
	}
	if err := k.writeCheckpoint(r.Context(), &state, container, req); err != nil {
		answer(w, fmt.Errorf("checkpointing of %v/%v/%v failed (%w)", namespace, name, container, err))
		return
	}
	writeJSON(w, map[string][]string{"items": {req.GetLocation()}})
}

// writeCheckpoint sets the file in the request, and passes it to the runtime. A timeout, in seconds, lengthens the one of calls of the
// runtime.
func (k *Server) writeCheckpoint(ctx context.Context, state *lifecycle.Observed, container string, req *cri.CheckpointContainerRequest) error {
	c, ok := running(state, container)
	if !ok {
		return fmt.Errorf("container %v not found", container)
	}
	rt, can := k.opts.Runtime.(checkpointer)
	if !can || k.opts.RootDir == "" {
		return status.Error(codes.Unimplemented, "method CheckpointContainer not implemented")
	}
	if req.GetTimeout() < 0 {
		return errors.New("CheckpointContainer requires the timeout value to be > 0") // kubelet's words
	}
	dir := filepath.Join(k.opts.RootDir, "checkpoints")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	limit := checkpointLimit
	if asked := time.Duration(req.GetTimeout()) * time.Second; asked > limit {
		limit = asked
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req.ContainerId, req.Timeout = c.ID, int64(limit/time.Second)
	req.Location = filepath.Join(dir, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", state.Pod.Name, state.Pod.Namespace, container, time.Now().Format(time.RFC3339)))
	return rt.CheckpointContainer(ctx, req)
}
