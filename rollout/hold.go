package rollout

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
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
	h.Host, _ = os.Hostname() // without a name there is none to tell
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
	return errors.Is(syscall.Kill(h.PID, 0), syscall.ESRCH)
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

// contest decides whether this run may go on: nobody else is at the controller, or
// he is dead. Otherwise it waits for a sign of life, and then it is a [BusyError].
// It returns false when it has to look again.
func (r *running) contest(ctx context.Context, old *corev1.ReplicationController) (mine bool, err error) {
	h, found := holderOf(old)
	switch {
	case !found || h.ID == r.self.ID:
		r.rival = nil
		return true, nil
	case r.held:
		return false, &BusyError{Name: old.Name, Holder: h} // he took this run for dead
	case h.dead(r.self):
		r.note(fmt.Sprintf("%s is no more; taking over", h))
		return true, nil
	case r.rival == nil || r.rival.ID != h.ID:
		r.rival, r.rivalSince = &h, time.Now()
	case r.rival.Beat != h.Beat:
		return false, &BusyError{Name: old.Name, Holder: h}
	}
	rest := time.Until(r.rivalSince.Add(deadAfter))
	if rest <= 0 {
		r.note(fmt.Sprintf("%s has given no sign of life for %v; taking over", h, deadAfter))
		return true, nil
	}
	r.note(fmt.Sprintf("it is being updated by %s; looking for a sign of life, for at most %v", h, deadAfter))
	t := time.NewTimer(rest)
	defer t.Stop()
	select {
	case <-r.changed:
	case <-t.C:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	r.progress = time.Now() // nothing was due meanwhile
	return false, nil
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
