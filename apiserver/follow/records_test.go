package follow_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/sampan-io/sampan/apiserver/follow"
	"github.com/sampan-io/sampan/store"
)

// A script is a store that answers each list with the next state, and each watch with the events and the error of that state.
type script []struct {
	state  []string
	events []store.Event
	end    error
}

func (s *script) List(store.Query, store.Page) (store.Listing, error) {
	if len(*s) == 0 {
		return store.Listing{}, store.ErrStopped
	}
	var l store.Listing
	for _, key := range (*s)[0].state {
		l.Records = append(l.Records, store.Record{Key: key})
	}
	return l, nil
}

func (s *script) Watch(context.Context, store.Query, store.Revision) iter.Seq2[store.Event, error] {
	now := (*s)[0]
	*s = (*s)[1:]
	return func(yield func(store.Event, error) bool) {
		for _, ev := range now.events {
			if !yield(ev, nil) {
				return
			}
		}
		yield(store.Event{}, now.end)
	}
}

func TestRecordsBeginAgainWhenEventsAreGone(t *testing.T) {
	set := store.Event{Record: store.Record{Key: "b"}}
	gone := store.Event{Record: store.Record{Key: "a"}, Deleted: true}
	st := &script{
		{[]string{"a"}, []store.Event{set, {}, gone}, store.ErrExpired},
		{[]string{"b"}, nil, store.ErrExpired},
		{nil, nil, store.ErrStopped},
		{[]string{"never"}, nil, nil},
	}
	var got []string
	follow.Records(t.Context(), st, store.Query{}, follow.Follower{
		All: func(_ context.Context, records []store.Record) error {
			got = append(got, fmt.Sprint("all ", len(records)))
			return nil
		},
		Changed: func(_ context.Context, ev store.Event) { got = append(got, fmt.Sprint(ev.Key, " ", ev.Deleted)) },
	})
	if want := []string{"all 1", "b false", "a true", "all 1", "all 0"}; !slices.Equal(got, want) {
		t.Errorf("calls are %q, want %q", got, want)
	}
}
