package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// reportFD is the descriptor on which the program in the background reports to
// the one that started it.
const reportFD = 3

// A Report is one line of a starting cluster's output. Ready or Error is the
// last one.
type Report struct {
	Step  string    `json:"step,omitempty"` // the present step
	Ready *Instance `json:"ready,omitempty"`
	Error string    `json:"error,omitempty"`
}

// Start runs the program with the given arguments in the background, in its own
// session, logging to the profile's log file, and blocks until it is ready or has
// failed. If step is not nil it is called with each step of the start. When ctx is
// cancelled first, Start sends SIGTERM to the program.
func Start(ctx context.Context, p Profile, program string, args []string, step func(string)) (Instance, error) {
	started, err := p.starting()
	if err != nil {
		return Instance{}, err
	}
	defer started()
	told, err := p.announce()
	if err != nil {
		return Instance{}, err
	}
	defer told()
	log, err := os.OpenFile(p.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if NoSpace(err) { // the cluster is more important than its log
		log, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	if err != nil {
		return Instance{}, fmt.Errorf("opening the log: %w", err)
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return Instance{}, err
	}
	defer r.Close()

	// Not CommandContext: the program must outlive this one.
	cmd := exec.Command(program, args...) //nolint:noctx // see above
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{w} // reportFD
	cmd.SysProcAttr = ownSession()
	cmd.Dir = "/"
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return Instance{}, fmt.Errorf("starting %s: %w", program, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	instance, err := follow(r, step)
	if err != nil {
		_ = cmd.Wait() // it has closed its end of the pipe because it ends
		if errors.Is(err, errExited) {
			err = fmt.Errorf("%w%s", err, causeOfEnd(cmd.ProcessState))
		}
		return Instance{}, err
	}
	return instance, cmd.Process.Release()
}

// follow reads the reports until the last one.
func follow(r io.Reader, step func(string)) (Instance, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var rep Report
		if err := json.Unmarshal(lines.Bytes(), &rep); err != nil {
			return Instance{}, fmt.Errorf("the cluster reported %q: %w", lines.Text(), err)
		}
		switch {
		case rep.Error != "":
			return Instance{}, errors.New(rep.Error)
		case rep.Ready != nil:
			return *rep.Ready, nil
		case step != nil:
			step(rep.Step)
		}
	}
	return Instance{}, errExited
}

var errExited = errors.New("the cluster exited before it was ready")

// causeOfEnd returns the known cause of the end of a process that did not report an error.
func causeOfEnd(state *os.ProcessState) string {
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case !ok || !status.Signaled():
		return ""
	case status.Signal() == syscall.SIGKILL:
		return ": it was killed, by another process or by the kernel because there was too little memory (dmesg has a line then)"
	}
	return ": " + state.String()
}

// A Reporter reports the progress of a start to the process that started this one.
// The zero Reporter discards the reports.
type Reporter struct{ w io.WriteCloser }

// NewReporter returns a reporter to the process that ran this program with [Start].
func NewReporter() Reporter {
	closeOnExec(reportFD)
	return Reporter{os.NewFile(reportFD, "report")}
}

// ReportTo returns a reporter that writes each [Report] as a line of JSON, and closes w after the last one. It is
// used by one goroutine at a time.
func ReportTo(w io.WriteCloser) Reporter { return Reporter{w} }

// Step reports the step that begins now.
func (r Reporter) Step(what string) { r.send(Report{Step: what}) }

// Ready is the last report of a start that succeeded.
func (r Reporter) Ready(i Instance) { r.send(Report{Ready: &i}); r.close() }

// Fail is the last report of one that did not.
func (r Reporter) Fail(err error) {
	r.send(Report{Error: strings.TrimSpace(err.Error())})
	r.close()
}

// send ignores errors: the cluster does not depend on the process that started it.
func (r Reporter) send(rep Report) {
	if r.w == nil {
		return
	}
	data, err := json.Marshal(rep)
	if err != nil {
		return
	}
	_, _ = r.w.Write(append(data, '\n'))
}

func (r Reporter) close() {
	if r.w != nil {
		_ = r.w.Close()
	}
}
