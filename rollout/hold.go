package rollout

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/client"
)

// An annotation on the controller keeps two runs apart: the holder, with a counter that it increments with each write,
// at least once in renewEvery. Another run that finds the annotation watches whether the counter changes. No clocks are
// compared.
const (
	renewEvery = 30 * time.Second
	deadAfter  = 3 * renewEvery // two renewals may be late

	// seekEvery is how often a run checks whether the holder's process exists, if it is on the same machine.
	seekEvery = time.Second
)

// A Holder identifies the run of an update, in an annotation of the controller.
type Holder struct {
	ID    string    `json:"id"` // of the run; empty for a new one
	User  string    `json:"user,omitempty"`
	Host  string    `json:"host,omitempty"`
	PID   int       `json:"pid,omitempty"`
	Since time.Time `json:"since"` // by the holder's clock

	// Place identifies the boot of the machine and the PID namespace in which PID is valid. A process with the same
	// place can check whether the holder is alive; empty means that none can.
	Place string `json:"place,omitempty"`

	// Start is when the process was started, in clock ticks since boot, because another process
	// may get the same PID later. 0 means that it is not known.
	Start uint64 `json:"start,omitempty"`

	// Beat is the counter that the holder increments while it is alive.
	Beat int64 `json:"beat"`
}

func (h Holder) String() string {
	who := cmp.Or(h.User, "an unknown user")
	if h.Host != "" {
		who += "@" + h.Host
	}
	if h.PID != 0 {
		who += fmt.Sprintf(", process %d", h.PID)
	}
	if !h.Since.IsZero() {
		who += ", since " + h.Since.UTC().Format(time.RFC3339)
	}
	return who
}

// A BusyError reports that another run is updating the controller, and is alive.
type BusyError struct {
	Name   string // of the controller
	Holder Holder
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("replicationcontroller %q is being updated by %s", e.Name, e.Holder)
}

// thisProcess returns the Holder of this process, without an ID.
func thisProcess() Holder {
	h := Holder{PID: os.Getpid(), Place: place()}
	_, h.Start, _ = processOf(h.PID) // 0 without /proc
	h.Host, _ = os.Hostname()        // empty without a host name
	if u, err := user.Current(); err == nil {
		h.User = u.Username
	}
	return h
}

// place returns Holder.Place of this process; empty if it cannot be read.
func place() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + space
}

func (h Holder) begun() Holder {
	h.ID = cmp.Or(h.ID, rand.Text())
	if h.Since.IsZero() {
		h.Since = time.Now().Truncate(time.Second)
	}
	return h
}

// dead reports whether the process of h has certainly ended. It returns false if self has another place.
func (h Holder) dead(self Holder) bool {
	if h.Place == "" || h.Place != self.Place || h.PID <= 0 {
		return false
	}
	if gone(h.PID) {
		return true
	}
	state, start, err := processOf(h.PID)
	if err != nil {
		return false // it exists, but /proc may hide it
	}
	// A killed process whose parent does not wait for it keeps its number as a zombie.
	return state == 'Z' || state == 'X' || h.Start != 0 && start != h.Start
}

// processOf reads the state and start time of a process from /proc/PID/stat; see proc(5).
func processOf(pid int) (state byte, start uint64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// The name, in parentheses, may contain anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const stateField, startField = 0, 19 // fields 3 and 22 of proc(5), without the first two
	if len(fields) <= startField {
		return 0, 0, fmt.Errorf("/proc/%d/stat has %d fields after the name, want more than %d", pid, len(fields), startField)
	}
	start, err = strconv.ParseUint(fields[startField], 10, 64)
	return fields[stateField][0], start, err
}

// holderOf returns the holder of the update of a controller.
func holderOf(rc *corev1.ReplicationController) (h Holder, found bool) {
	text, found := rc.Annotations[markHolder]
	if !found {
		return h, false
	}
	if err := json.Unmarshal([]byte(text), &h); err != nil || h.ID == "" {
		h.ID = text // an unknown format: a changed text counts as a changed counter
	}
	return h, true
}

// hold sets the holder annotation on rc, which must be a copy, to this run.
func (r *running) hold(rc *corev1.ReplicationController) {
	r.self.Beat++
	text, err := json.Marshal(r.self)
	if err != nil {
		return // cannot happen: the fields are strings and numbers
	}
	mark(rc, markHolder, string(text))
}

// contest reports whether this run may continue: the controller has no other holder, or the holder is dead. Otherwise it
// waits until the controller changes or time has passed, and returns false; the caller calls it again. It returns a
// [BusyError] when the holder's counter changes, and takes over when the counter has not changed for deadAfter.
func (r *running) contest(ctx context.Context, old *corev1.ReplicationController) (mine bool, err error) {
	h, found := holderOf(old)
	switch {
	case !found || h.ID == r.self.ID:
		r.rival = nil
		return true, nil
	case r.held:
		return false, &BusyError{Name: old.Name, Holder: h} // the other run has taken over
	case h.dead(r.self):
		return r.takeFrom(fmt.Sprintf("%s has ended; taking over", h)), nil
	case r.rival == nil || r.rival.ID != h.ID:
		r.rival, r.rivalSince = &h, time.Now()
	case r.rival.Beat != h.Beat:
		return false, &BusyError{Name: old.Name, Holder: h}
	}
	rest := time.Until(r.rivalSince.Add(deadAfter))
	if rest <= 0 {
		return r.takeFrom(fmt.Sprintf("%s has not renewed its lock for %v; taking over", h, deadAfter)), nil
	}
	r.note(fmt.Sprintf("it is being updated by %s; waiting up to %v for that run to renew its lock", h, deadAfter))
	if h.Place != "" && h.Place == r.self.Place {
		rest = min(rest, seekEvery)
	}
	if r.opts.Timeout > 0 {
		left := time.Until(r.rivalSince.Add(r.opts.Timeout))
		if left <= 0 {
			return false, &TimeoutError{
				After: r.opts.Timeout,
				Why:   fmt.Sprintf("it is being updated by %s, whose lock expires %v after the last renewal", h, deadAfter),
			}
		}
		rest = min(rest, left)
	}
	t := time.NewTimer(rest)
	defer t.Stop()
	select {
	case <-r.changed:
	case <-t.C:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	return false, nil
}

// takeFrom prints a note and takes over from a dead run.
func (r *running) takeFrom(note string) bool {
	r.note(note)
	if r.rival != nil {
		r.rival, r.progress = nil, time.Now() // the wait for the other run does not count for the timeout
	}
	return true
}

// letGo removes this run's holder annotation after an update that stopped half-way, so that the next run need not wait
// until the lock expires. It also makes the given change, if that is not nil. It ignores errors, and takes at most
// letGoTime.
func (r *running) letGo(ctx context.Context, change func(*corev1.ReplicationController)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), letGoTime)
	defer cancel()
	old, found := r.controllers.Get(r.opts.Namespace, r.old)
	for range letGoTries {
		h, held := Holder{}, false
		if found {
			h, held = holderOf(old)
		}
		if !held || h.ID != r.self.ID {
			return
		}
		old = old.DeepCopy()
		delete(old.Annotations, markHolder)
		if change != nil {
			change(old)
		}
		_, err := client.ReplicationControllers.Update(ctx, r.opts.Client, old, "")
		if !apierrors.IsConflict(err) {
			return
		}
		old, err = client.ReplicationControllers.Get(ctx, r.opts.Client, r.opts.Namespace, r.old)
		found = err == nil
	}
}

const (
	letGoTime  = 2 * time.Second // how long letGo may take after an interrupt
	letGoTries = 5               // attempts, because the controller may write a status in between
)
