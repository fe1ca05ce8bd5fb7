package rollout

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/client"
)

// Two runs on one controller are kept apart by a mark on it: who is at it, and a
// number that he counts up with each write, and at least once in renewEvery. The
// mark goes along with writes that are made anyway. Clocks are not compared: who
// finds the mark of another watches whether the number moves.
const (
	renewEvery = 30 * time.Second
	deadAfter  = 3 * renewEvery // two may be late

	// seekEvery is how often a process of this machine is looked at while its sign of life is
	// waited for. That is rare and short, so a timer does.
	seekEvery = time.Second
)

// A Holder is who performs an update, as it stands on the controller.
type Holder struct {
	ID    string    `json:"id"` // of the run; empty means a new one
	User  string    `json:"user,omitempty"`
	Host  string    `json:"host,omitempty"`
	PID   int       `json:"pid,omitempty"`
	Since time.Time `json:"since"` // by his clock

	// Place says among which processes PID counts: this boot of this machine, and
	// its process namespace. Who is at the same place can see whether the process
	// lives; empty means that nobody can.
	Place string `json:"place,omitempty"`

	// Start is when the process was started, in clock ticks since boot: another process
	// may get its number later. 0 means that it is not known.
	Start uint64 `json:"start,omitempty"`

	// Beat is what shows that he is alive: it moves.
	Beat int64 `json:"beat"`
}

func (h Holder) String() string {
	who := cmp.Or(h.User, "somebody")
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

// A BusyError says that somebody else is updating the controller, and is alive.
type BusyError struct {
	Name   string // of the controller
	Holder Holder
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("replicationcontroller %q is being updated by %s", e.Name, e.Holder)
}

// thisProcess says who runs this program.
func thisProcess() Holder {
	h := Holder{PID: os.Getpid(), Place: place()}
	_, h.Start, _ = processOf(h.PID) // 0 where the system does not tell
	h.Host, _ = os.Hostname()        // without a name there is none to tell
	if u, err := user.Current(); err == nil {
		h.User = u.Username
	}
	return h
}

// place names the set of processes that this one can see, or is empty where the
// system does not tell.
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

// dead reports whether h is certain to be dead, seen from self.
func (h Holder) dead(self Holder) bool {
	if h.Place == "" || h.Place != self.Place || h.PID <= 0 {
		return false
	}
	if errors.Is(syscall.Kill(h.PID, 0), syscall.ESRCH) {
		return true
	}
	state, start, err := processOf(h.PID)
	if err != nil {
		return false // it exists, and may be hidden
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
	const stateField, startField = 0, 19 // fields 3 and 22 of proc(5), of which two are cut off
	if len(fields) <= startField {
		return 0, 0, fmt.Errorf("/proc/%d/stat has %d fields after the name, want more than %d", pid, len(fields), startField)
	}
	start, err = strconv.ParseUint(fields[startField], 10, 64)
	return fields[stateField][0], start, err
}

// holderOf returns who is at the update of a controller.
func holderOf(rc *corev1.ReplicationController) (h Holder, found bool) {
	text, found := rc.Annotations[markHolder]
	if !found {
		return h, false
	}
	if err := json.Unmarshal([]byte(text), &h); err != nil || h.ID == "" {
		h.ID = text // somebody's all the same; it moves when its text does
	}
	return h, true
}

// hold writes on a controller, which is the caller's own, that this run is at it.
func (r *running) hold(rc *corev1.ReplicationController) {
	r.self.Beat++
	text, err := json.Marshal(r.self)
	if err != nil {
		return // strings and numbers: it cannot be
	}
	mark(rc, markHolder, string(text))
}

// contest decides whether this run may go on: no other run is at the controller, or that one
// is dead. Otherwise it waits for a sign of life, after which it is a [BusyError], for at
// most deadAfter and Options.Timeout. It returns false when it has to look again.
func (r *running) contest(ctx context.Context, old *corev1.ReplicationController) (mine bool, err error) {
	h, found := holderOf(old)
	switch {
	case !found || h.ID == r.self.ID:
		r.rival = nil
		return true, nil
	case r.held:
		return false, &BusyError{Name: old.Name, Holder: h} // he took this run for dead
	case h.dead(r.self):
		return r.takeFrom(fmt.Sprintf("%s has ended; taking over", h)), nil
	case r.rival == nil || r.rival.ID != h.ID:
		r.rival, r.rivalSince = &h, time.Now()
	case r.rival.Beat != h.Beat:
		return false, &BusyError{Name: old.Name, Holder: h}
	}
	rest := time.Until(r.rivalSince.Add(deadAfter))
	if rest <= 0 {
		return r.takeFrom(fmt.Sprintf("%s has given no sign of life for %v; taking over", h, deadAfter)), nil
	}
	r.note(fmt.Sprintf("it is being updated by %s; looking for a sign of life, for at most %v", h, deadAfter))
	if h.Place != "" && h.Place == r.self.Place {
		rest = min(rest, seekEvery)
	}
	if r.opts.Timeout > 0 {
		left := time.Until(r.rivalSince.Add(r.opts.Timeout))
		if left <= 0 {
			return false, &TimeoutError{
				After: r.opts.Timeout,
				Why:   fmt.Sprintf("it is being updated by %s, who is taken for dead after %v without a sign of life", h, deadAfter),
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

// takeFrom goes on in the place of a run that is dead.
func (r *running) takeFrom(note string) bool {
	r.note(note)
	if r.rival != nil {
		r.rival, r.progress = nil, time.Now() // nothing was due meanwhile
	}
	return true
}

// letGo takes this run's mark away after an update that stopped half-way, so that
// nobody has to wait for its death, and makes another change by the way. It is a
// courtesy, and does not take long.
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
	letGoTime  = 2 * time.Second // what an interrupted program may take to say goodbye
	letGoTries = 5               // its controller writes a status now and then
)
