package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// reportFD is the descriptor on which the program in the background reports to
// the one that started it.
const reportFD = 3

// A Report is one line of a starting cluster's output. Ready or Error is the
// last one.
type Report struct {
	Name  string    `json:"name,omitempty"` // of the cluster, if the program runs several
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
	var instance Instance
	err = inBackground(ctx, p, program, args, func(r io.Reader) error {
		instance, err = follow(r, step)
		return err
	})
	if err != nil {
		return Instance{}, err
	}
	return instance, nil
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
type Reporter struct {
	w    io.WriteCloser
	name string // see Report
}

// NewReporter returns a reporter to the process that ran this program with [Start].
func NewReporter() Reporter {
	closeOnExec(reportFD)
	return Reporter{w: os.NewFile(reportFD, "report")}
}

// ReportTo returns a reporter that writes each [Report] as a line of JSON, and closes w after the last one. It is used
// by one goroutine at a time.
func ReportTo(w io.WriteCloser) Reporter { return Reporter{w: w} }

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
	rep.Name = r.name
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
