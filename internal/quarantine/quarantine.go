// Package quarantine keeps an object that ended the process from ending the next one.
//
// Parts of a program call [Quarantine.Begin] before they work on an object and the function that it returns afterwards. For a
// large object a small file exists in between. If the process ends in the meantime (no memory, a fatal error of the Go runtime,
// a signal), the file stays: the next process sets the object aside. The part leaves it alone, and an Event on it says so, until
// someone changes it.
//
// Small objects, of which the process ends for other reasons, cost a look at their size. Files are not synced: they have
// to survive the process, not the machine.
package quarantine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// LeastSize is the size in bytes, encoded as protobuf, from which objects are marked. Work whose cost is the square of the size
// takes a part of a second and a few hundred MB at most below it.
const LeastSize = 256 << 10

// An Object has a size, as all generated types of Kubernetes do.
type Object interface {
	metav1.Object
	Size() int
}

// A Quarantine has the marks of one process, and the marks of an earlier one. A nil Quarantine marks nothing. It is
// safe for concurrent use.
type Quarantine struct {
	dir string
	log *slog.Logger

	mu     sync.Mutex
	aside  map[place]*mark                    // guarded by mu
	said   map[place]bool                     // guarded by mu; reported by this process
	report func(part string, o metav1.Object) // guarded by mu
}

// place is an object in one part of the program.
type place struct{ part, kind, namespace, name string }

// A mark is the content of a file.
type mark struct {
	Part      string    `json:"part"`
	Kind      string    `json:"kind"` // the Go type
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Edition   string    `json:"edition"` // see edition
	file      string
}

func (m *mark) place() place { return place{m.Part, m.Kind, m.Namespace, m.Name} }

// suffix of the files of marks.
const suffix = ".mark"

// Open reads what the process before has left in a directory, which is made if it does not exist. No other process may use it.
// A nil log means slog.Default.
func Open(dir string, log *slog.Logger) (*Quarantine, error) {
	if log == nil {
		log = slog.Default()
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	q := &Quarantine{dir: dir, log: log, aside: map[place]*mark{}, said: map[place]bool{}}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		m := &mark{file: path}
		data, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(data, m)
		}
		if err != nil { // the process ended while it wrote it, before the work began
			_ = os.Remove(path)
			continue
		}
		q.aside[m.place()] = m
		log.Warn("the process before ended while it worked on an object; it is set aside until it is changed",
			"part", m.Part, "kind", m.Kind, "namespace", m.Namespace, "name", m.Name, "uid", m.UID)
	}
	return q, nil
}

// OnAside sets a function that reports an object that is set aside, once per object and process. It is called by
// [Quarantine.Begin], with the version that is set aside.
func (q *Quarantine) OnAside(report func(part string, o metav1.Object)) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.report = report
}

// Begin says that a part begins to work on an object, and returns a function that ends the work, which must be called once.
// It returns false if the object is set aside: then the part must leave it alone, and there is nothing to end. A mark that can't be
// written is logged, and the work goes on.
func (q *Quarantine) Begin(part string, o Object) (end func(), ok bool) {
	if q == nil {
		return nothing, true
	}
	small := o.Size() < LeastSize
	if small && q.empty() {
		return nothing, true
	}
	at := place{part, strings.TrimPrefix(fmt.Sprintf("%T", o), "*"), o.GetNamespace(), o.GetName()}
	if !q.free(at, o) {
		return nil, false
	}
	if small {
		return nothing, true
	}
	file, err := q.write(&mark{Part: part, Kind: at.kind, Namespace: at.namespace, Name: at.name, UID: o.GetUID(), Edition: edition(o)})
	if err != nil {
		q.log.Warn("marking the work on a large object failed", "part", part, "kind", at.kind, "namespace", at.namespace, "name", at.name, "err", err)
		return nothing, true
	}
	return func() { _ = os.Remove(file) }, true
}

// Forget drops what is set aside of an object that was deleted. The object that has its name next is another one.
func (q *Quarantine) Forget(part, namespace, name string) {
	q.drop(func(m *mark) bool { return m.Part == part && m.Namespace == namespace && m.Name == name })
}

// Sweep drops what is set aside of objects that do not exist any more. Kind is a Go type such as v1.Pod. It is called before
// the parts begin, which have no reason to look at a name that nothing has.
func (q *Quarantine) Sweep(exists func(kind, namespace, name string, uid types.UID) bool) {
	q.drop(func(m *mark) bool { return !exists(m.Kind, m.Namespace, m.Name, m.UID) })
}

func (q *Quarantine) drop(goes func(*mark) bool) {
	if q == nil || q.empty() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for at, m := range q.aside {
		if goes(m) {
			delete(q.aside, at)
			_ = os.Remove(m.file)
		}
	}
}

func nothing() {}

// empty reports whether no object is set aside.
func (q *Quarantine) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.aside) == 0
}

// free reports whether an object is not set aside. One that was changed since is free again.
func (q *Quarantine) free(at place, o metav1.Object) bool {
	q.mu.Lock()
	m := q.aside[at]
	if m == nil {
		q.mu.Unlock()
		return true
	}
	if m.UID != o.GetUID() || m.Edition != edition(o) {
		delete(q.aside, at)
		q.mu.Unlock()
		_ = os.Remove(m.file)
		return true
	}
	report := q.report
	if report == nil || q.said[at] {
		report = nil
	} else {
		q.said[at] = true
	}
	q.mu.Unlock()
	if report != nil {
		report(at.part, o)
	}
	return false
}

func (q *Quarantine) write(m *mark) (string, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", m.place()))
	path := filepath.Join(q.dir, hex.EncodeToString(sum[:16])+suffix)
	return path, os.WriteFile(path, data, 0o600)
}

// edition is different for versions of an object that people make: the specification, labels, annotations, owners and
// the wish to delete it count, what controllers write to the status does not.
func edition(o metav1.Object) string {
	h := sha256.New()
	version := strconv.FormatInt(o.GetGeneration(), 10)
	if o.GetGeneration() == 0 {
		version = o.GetResourceVersion() // a kind without generations
	}
	_, _ = fmt.Fprintf(h, "%s %t %q\n", version, o.GetDeletionTimestamp() != nil, o.GetFinalizers())
	for _, pairs := range []map[string]string{o.GetLabels(), o.GetAnnotations()} {
		for _, k := range slices.Sorted(maps.Keys(pairs)) {
			_, _ = fmt.Fprintf(h, "%q=%q\n", k, pairs[k])
		}
		_, _ = fmt.Fprintln(h)
	}
	for _, r := range o.GetOwnerReferences() {
		_, _ = fmt.Fprintf(h, "%q\n", r.UID)
	}
	return hex.EncodeToString(h.Sum(nil))
}
