package local

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// A Foreign is a running cluster of another user of this machine.
type Foreign struct {
	Name    string `json:"name"`
	User    string `json:"user"` // or the user's ID, if it has no name
	PID     int    `json:"pid"`
	DataDir string `json:"dataDir,omitempty"` // empty if it is not known
}

// OfOtherUsers returns the clusters that other users run on this machine, by their processes: their files can be anywhere,
// and are not readable without root. Those whose processes cannot be seen are missing.
func OfOtherUsers() []Foreign {
	return foreign("/proc", os.Getuid(), func(uid int) string {
		if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
			return u.Username
		}
		return strconv.Itoa(uid)
	})
}

func foreign(proc string, self int, nameOf func(uid int) string) (all []Foreign) {
	entries, _ := os.ReadDir(proc)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		info, err := os.Stat(filepath.Join(proc, e.Name()))
		if err != nil {
			continue
		}
		uid, ok := ownerOf(info)
		if !ok || uid == self {
			continue
		}
		line, err := os.ReadFile(filepath.Join(proc, e.Name(), "cmdline"))
		if err != nil {
			continue
		}
		if f, ok := served(strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")); ok {
			f.PID, f.User = pid, nameOf(uid)
			all = append(all, f)
		}
	}
	return all
}

// served returns the cluster that a process with these arguments serves, as `sampan up` and `sampan serve` do.
func served(args []string) (f Foreign, ok bool) {
	if len(args) < 2 {
		return f, false
	}
	program := filepath.Base(args[0])
	if !strings.HasPrefix(program, "sampan") || strings.HasPrefix(program, "sampan-runtime") { // which has a serve of its own
		return f, false
	}
	f.Name = DefaultName
	for i, arg := range args[1:] {
		name, value, has := strings.Cut(arg, "=")
		if !has && i+2 < len(args) {
			value = args[i+2]
		}
		switch {
		case arg == "serve":
			ok = true
		case name == "--name":
			f.Name = value
		case name == "--data-dir":
			f.DataDir = value
		}
	}
	return f, ok && checkName(f.Name) == nil
}

// OtherUsers returns a sentence about the clusters with the name of the profile that other users run, or "".
func (p Profile) OtherUsers() string {
	for _, f := range OfOtherUsers() {
		if f.Name == p.Name {
			return fmt.Sprintf("the user %s runs a cluster of that name (process %d): run the command as that user", f.User, f.PID)
		}
	}
	return ""
}
