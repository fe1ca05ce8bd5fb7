package oomscore

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// Runtime is the score of a container runtime: that which the unit file of containerd and kubelet's oomScoreAdj have.
// Containers have -998 at least.
const Runtime = -999

// Protect gives this process a score, until the result is called. Without CAP_SYS_RESOURCE it changes nothing: to lower a
// score needs that. It is called by one part of a process at a time.
func Protect(score int) (restore func()) { return process.protect(score) }

// Spawn calls start, which starts programs, and returns its error. The programs have the score that this process had before
// [Protect], but not less than 0.
func Spawn(start func() error) error { return process.spawn(start) }

// Run is the Run of a command that does not inherit the score.
func Run(cmd *exec.Cmd) error {
	if err := Spawn(cmd.Start); err != nil {
		return err
	}
	return cmd.Wait()
}

// CombinedOutput is the CombinedOutput of a command that does not inherit the score.
func CombinedOutput(cmd *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := Run(cmd)
	return out.Bytes(), err
}

// process is the score of this process, of which there is one.
var process = &guard{file: "/proc/self/oom_score_adj"} // see above

// A guard sets and raises the score of a process.
type guard struct {
	file string

	mu       sync.Mutex
	own      string // guarded by mu; the score of the process; empty: it is not protected
	child    string // guarded by mu; that of programs
	spawning int    // guarded by mu; calls of spawn under way
}

func (g *guard) protect(score int) (restore func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, err := g.read()
	if err != nil || g.own != "" {
		return func() {}
	}
	if before != score && g.write(strconv.Itoa(score)) != nil {
		return func() {}
	}
	g.own, g.child = strconv.Itoa(score), strconv.Itoa(max(before, 0))
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.own = ""
		_ = g.write(strconv.Itoa(before)) // raising it is always possible
	}
}

func (g *guard) spawn(start func() error) error {
	g.mu.Lock()
	if g.own != "" && g.spawning == 0 {
		_ = g.write(g.child)
	}
	g.spawning++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.spawning--
		if g.own != "" && g.spawning == 0 {
			_ = g.write(g.own) // it was possible before
		}
	}()
	return start()
}

func (g *guard) read() (int, error) {
	text, err := os.ReadFile(g.file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func (g *guard) write(score string) error { return os.WriteFile(g.file, []byte(score), 0) }
