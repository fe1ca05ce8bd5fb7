package follow_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/sampan-io/sampan/apiserver/follow"
	"github.com/sampan-io/sampan/store"
)

// A script is a store that answers each list with the next state, and each watch with the events and the error of that state.
type script []struct {
	state  []string
	events []store.Event
	end    error // of the watch; of the list if there is no state
}

func (s *script) List(store.Query, store.Page) (store.Listing, error) {
	if len(*s) == 0 {
		return store.Listing{}, store.ErrStopped
	}
	if now := (*s)[0]; now.state == nil && now.end != nil {
		*s = (*s)[1:]
		return store.Listing{}, now.end
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
		{[]string{}, nil, store.ErrStopped},
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

// TestRecordsSurviveErrors lets lists, watches and the follower fail: only the end of the store ends it.
func TestRecordsSurviveErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("connection lost")
		st := &script{
			{nil, nil, lost},
			{nil, nil, store.ErrUnavailable},
			{[]string{"a"}, []store.Event{{Record: store.Record{Key: "b"}}}, lost},
			{[]string{"refused"}, nil, nil},
			{[]string{"a", "b"}, []store.Event{{Record: store.Record{Key: "c"}}}, store.ErrStopped},
		}
		var got []string
		follow.Records(t.Context(), st, store.Query{}, follow.Follower{
			All: func(_ context.Context, records []store.Record) error {
				got = append(got, fmt.Sprint("all ", len(records)))
				if records[0].Key == "refused" {
					*st = (*st)[1:]
					return lost
				}
				return nil
			},
			Changed: func(_ context.Context, ev store.Event) { got = append(got, ev.Key) },
			Log:     slog.New(slog.DiscardHandler),
		})
		if want := []string{"all 1", "b", "all 1", "all 2", "c"}; !slices.Equal(got, want) {
			t.Errorf("calls are %q, want %q", got, want)
		}
	})
}
