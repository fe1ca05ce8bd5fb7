package local

import "os"

// A Process names a process so that a later one with the same pid is not taken
// for it. The zero Process is none.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // when it started: on Linux clock ticks after boot (proc(5), stat, field 22)
}

// Self returns the calling process.
func Self() (Process, error) { return ProcessOf(os.Getpid()) }

// ProcessOf returns the process that has the pid now. One that has ended and that
// its parent has not asked about (which may be never, in a container whose first
// process takes no interest) is none, and neither is one that is ending.
func ProcessOf(pid int) (Process, error) {
	p, ended, err := look(pid)
	if err == nil && ended {
		return Process{}, os.ErrProcessDone
	}
	return p, err
}

// Alive reports whether the process is still there, and not about to end.
func (p Process) Alive() bool {
	now, err := ProcessOf(p.PID)
	return p.PID != 0 && err == nil && now == p
}

// there reports whether the process is there, be it ending.
func (p Process) there() bool {
	now, _, err := look(p.PID)
	return p.PID != 0 && err == nil && now == p
}
