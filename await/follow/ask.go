package follow

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
)

// A Reader is a client whose server may have blocking reads.
type Reader interface {
	GetUntil(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, read client.BlockingRead) (client.Reading, error)
}

// A Question is what is asked about one object instead of a first list.
type Question struct {
	Reader Reader
	Name   string
	Read   client.BlockingRead

	// By is when the answer is no longer waited for, and a list is made.
	By time.Time
}

// ask asks the question, if there is one. It returns the revision of the object in the
// answer, or "" if there must be a list.
func (f *Follower) ask(ctx context.Context) (revision string, err error) {
	q := f.Ask
	if q == nil {
		return "", nil
	}
	timed, cancel := context.WithDeadline(ctx, q.By)
	defer cancel()
	answer, err := q.Reader.GetUntil(timed, f.Source.GroupVersionResource, f.Source.Namespace, q.Name, q.Read)
	r := Report{Begins: true, Whole: true}
	switch {
	case ctx.Err() != nil:
		return "", errTold
	case err != nil && !answer.Reached:
		return "", nil // the list says so
	case err != nil:
		r = Report{Reached: true}
	case answer.Object != nil:
		r.Page, revision = []client.Object{answer.Object}, answer.Object.GetResourceVersion()
	default:
		r.Was = answer.UID
	}
	if !f.Tell(r) {
		return "", errTold
	}
	return revision, nil
}
