package follow

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
)

// A Reader is a client that can make blocking reads.
type Reader interface {
	GetUntil(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, read client.BlockingRead) (client.Reading, error)
}

// A Question is a blocking read of one object that replaces the first list.
type Question struct {
	Reader Reader
	Name   string
	Read   client.BlockingRead

	// By is the time at which the follower stops waiting for the answer and makes a list.
	By time.Time
}

// ask sends the question, if there is one. It returns the resource version of the object in the answer, or "" if a list
// is needed.
func (f *Follower) ask(ctx context.Context) (revision string, err error) {
	q := f.Ask
	if q == nil {
		return "", nil
	}
	timed, cancel := context.WithDeadline(ctx, q.By)
	defer cancel()
	answer, err := q.Reader.GetUntil(timed, f.Source.GroupVersionResource, f.Source.Namespace, q.Name, q.Read)
	var r Report
	switch {
	case ctx.Err() != nil:
		return "", errStopped
	case err != nil && !answer.Reached:
		return "", nil // the list will return the same error
	case err != nil:
		r = Reached{}
	case answer.Object != nil:
		revision = answer.Object.GetResourceVersion()
		r = Page{Objects: []client.Object{answer.Object}, Begins: true, Whole: true}
	default:
		r = Page{Begins: true, Whole: true, Was: answer.UID}
	}
	if !f.Handle(r) {
		return "", errStopped
	}
	return revision, nil
}
