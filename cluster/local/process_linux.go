package local

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// look returns the process that has the pid, and whether it has ended or will do
// nothing else any more.
func look(pid int) (p Process, ended bool, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, false, err
	}
	// The second field is the name in parentheses and may hold anything.
	_, rest, _ := strings.Cut(string(data[max(0, strings.LastIndexByte(string(data), ')')):]), " ")
	fields := strings.Fields(rest)
	const ( // the fields 3, 9 and 22, counted from the third
		state     = 0
		flags     = 6
		startTime = 19
	)
	if len(fields) <= startTime {
		return Process{}, false, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields)+2)
	}
	bits, err := strconv.ParseUint(fields[flags], 10, 64)
	if err != nil {
		return Process{}, false, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	start, err := strconv.ParseUint(fields[startTime], 10, 64)
	if err != nil {
		return Process{}, false, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	const exiting = 0x4 // PF_EXITING in the kernel's include/linux/sched.h
	ended = fields[state] == "Z" || fields[state] == "X" || bits&exiting != 0
	if !ended {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		ended = err == nil && killed(string(status))
	}
	return Process{PID: pid, Start: start}, ended, nil
}

// killed reports whether the status of a process (proc(5)) has a SIGKILL that it has not
// obeyed yet.
func killed(status string) bool {
	for line := range strings.Lines(status) {
		name, mask, _ := strings.Cut(line, ":")
		if name != "SigPnd" && name != "ShdPnd" {
			continue
		}
		bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
		if err == nil && bits&(1<<(uint(syscall.SIGKILL)-1)) != 0 {
			return true
		}
	}
	return false
}
