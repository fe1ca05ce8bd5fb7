package node_test

import (
	"context"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/volumes"
)

// A checkpointing is a runtime that remembers the last request for a checkpoint.
type checkpointing struct {
	criclient.Runtime
	asked *cri.CheckpointContainerRequest
	err   error
}

func (c *checkpointing) CheckpointContainer(_ context.Context, req *cri.CheckpointContainerRequest) error {
	c.asked = req
	return c.err
}

func TestCheckpointIsPassedOn(t *testing.T) {
	r := newRig(t)
	rt := &checkpointing{Runtime: r.opts.Runtime}
	r.opts.Runtime, r.opts.RootDir = rt, t.TempDir()
	t.Cleanup(func() {
		if err := volumes.Clean(r.opts.RootDir); err != nil {
			t.Error(err)
		}
	})
	ca := newAuthority(t)
	server := r.served(ca).as(ca, ca.issue("kube-apiserver-kubelet-client"))
	r.create(webPod("web"))
	r.await("web", "ready", isReady)
	ask := func(path string) string {
		code, body, _ := server.do(http.MethodPost, "/checkpoint/default/"+path)
		return codeAnd(code, strings.TrimSpace(body))
	}
	file := regexp.QuoteMeta(filepath.Join(r.opts.RootDir, "checkpoints", "checkpoint-web_default-web-"))
	if got := ask("web/web?timeout=7&timeout=300"); !regexp.MustCompile(`^200 {"items":\["` + file + `[0-9T:Z+-]+\.tar"\]}$`).MatchString(got) {
		t.Errorf("the answer is %s", got)
	}
	if rt.asked.GetTimeout() != 300 || !strings.Contains(ask("web/web"), rt.asked.GetLocation()) || rt.asked.GetTimeout() != 120 || rt.asked.GetContainerId() == "" {
		t.Errorf("the runtime is asked for %v", rt.asked)
	}
	rt.err = status.Error(codes.Unimplemented, "method CheckpointContainer not implemented")
	for path, want := range map[string]string{
		"web/web":            "500 checkpointing of default/web/web failed (rpc error: code = Unimplemented desc = method CheckpointContainer not implemented)",
		"web/none":           "404 container none does not exist",
		"none/web":           "404 pod does not exist",
		"web/web?timeout=1s": "404 cannot parse value of timeout parameter",
	} {
		if got := ask(path); got != want {
			t.Errorf("%s is answered with %q, want %q", path, got, want)
		}
	}
	if code, _, _ := server.do(http.MethodGet, "/checkpoint/default/web/web"); code != http.StatusMethodNotAllowed {
		t.Errorf("GET is answered with %d", code)
	}
}
