package cni

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	cnitypes "github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/sampan-io/sampan/internal/oomscore"
	"github.com/sampan-io/sampan/internal/run"
)

// programs runs plug-ins. In contrast to libcni's own way, the end of the context also ends what a plug-in has started: a shell
// script whose child keeps its output open would otherwise be waited for without a limit.
type programs struct{ version.PluginDecoder }

const (
	// outputWait is how long the output of a plug-in that was killed may stay open.
	outputWait = time.Second
	// A program that is being replaced is tried again: ETXTBSY.
	busyTries, busyPause = 6, time.Second
)

// ExecPlugin implements [invoke.Exec].
func (*programs) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	for tries := 1; ; tries++ {
		var stdout, stderr bytes.Buffer
		c := exec.CommandContext(ctx, path)
		c.Env, c.Stdin, c.Stdout, c.Stderr = environ, bytes.NewReader(stdin), &stdout, &stderr
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
		c.WaitDelay = outputWait
		err := oomscore.Run(c)
		switch {
		case err == nil:
			return stdout.Bytes(), nil
		case errors.Is(err, syscall.ETXTBSY) && tries < busyTries && run.Pause(ctx, busyPause):
		case ctx.Err() != nil:
			return nil, &cnitypes.Error{Msg: fmt.Sprintf("the plug-in did not end in time: %v", ctx.Err()), Details: strings.TrimSpace(stderr.String())}
		default:
			return nil, failure(err, stdout.Bytes(), stderr.String())
		}
	}
}

// failure is the error of a plug-in that has ended: what it wrote, as the specification says, or what else is known.
func failure(err error, stdout []byte, stderr string) error {
	var said cnitypes.Error
	if len(stdout) == 0 {
		said.Msg = fmt.Sprintf("netplugin failed: %s", cmp.Or(strings.TrimSpace(stderr), err.Error()))
	} else if bad := json.Unmarshal(stdout, &said); bad != nil {
		said.Msg = fmt.Sprintf("netplugin failed but error parsing its diagnostic message %q: %v", stdout, bad)
	}
	return &said
}

// FindInPath implements [invoke.Exec].
func (*programs) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}
