package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Handover is what a program leaves to the one that replaces it in the same
// process: descriptors that stay open over execve.
type Handover struct {
	Listener int
	Lock     int
	FIFOs    map[string][]int // of running containers' output, by container id
	Restarts int              // how many times it has happened in this process

	// The files of the descriptors. The collector of garbage would close them before [Handover.Execute].
	listener *os.File
	server   *Server
}

// HandoverVariable names the environment variable that carries a [Handover].
const HandoverVariable = "SAMPAN_RUNTIME_HANDOVER"

// Handover returns what the next program in this process needs. It may be called
// once, after Run has returned [ErrRestart].
func (s *Server) Handover() (*Handover, error) {
	h := &Handover{FIFOs: s.supervisor.Handover(), Restarts: 1, server: s}
	if s.opts.Handed != nil {
		h.Restarts += s.opts.Handed.Restarts
	}
	var err error
	if h.listener, err = s.listener.File(); err != nil { // a copy in blocking mode; execve doesn't mind
		return nil, fmt.Errorf("handing over: %w", err)
	}
	for _, keep := range []struct {
		file *os.File
		fd   *int
	}{{h.listener, &h.Listener}, {s.lock, &h.Lock}} {
		fd := int(keep.file.Fd())
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return nil, fmt.Errorf("handing over: %w", err)
		}
		*keep.fd = fd
	}
	return h, nil
}

// Execute replaces this process by the program, which gets args and the handover.
// It returns only if that fails.
func (h *Handover) Execute(program string, args []string) error {
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	env := append(os.Environ(), HandoverVariable+"="+string(data))
	err = fmt.Errorf("executing %s: %w", program, unix.Exec(program, args, env))
	goruntime.KeepAlive(h)
	return err
}

// HandedOver returns what the program before has left in the environment, and takes
// it out of there. It is nil if there was none.
func HandedOver() (*Handover, error) {
	text, ok := os.LookupEnv(HandoverVariable)
	if !ok {
		return nil, nil // no handover is the usual case
	}
	if err := os.Unsetenv(HandoverVariable); err != nil {
		return nil, err
	}
	var h Handover
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return nil, fmt.Errorf("the environment variable %s is damaged: %w", HandoverVariable, err)
	}
	return &h, nil
}

// tryProgram asks the program at path for its version.
func tryProgram(ctx context.Context, path string) error {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "version").Output()
	if err == nil && !strings.HasPrefix(string(out), "sampan-runtime ") {
		err = fmt.Errorf("it answers %q to \"version\"", strings.TrimSpace(string(out)))
	}
	return err
}
