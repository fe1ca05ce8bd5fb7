package unread_test

import (
	"testing"
	"time"

	"github.com/sampan-io/sampan/node/unread"
)

func TestSince(t *testing.T) {
	var tracker unread.Tracker
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	check := func(container string, now int, want string) {
		t.Helper()
		got := "nothing"
		if since := tracker.Since(container, start, at(now)); since != nil {
			got = "all"
			if !since.IsZero() {
				got = since.Sub(start).String()
			}
		}
		if got != want {
			t.Errorf("%s after %ds: the client gets output since %s, want %s", container, now, got, want)
		}
	}
	check("a", 1, "all")
	tracker.Read("a", at(2))
	check("a", 3, "2s")
	check("b", 3, "all")
	tracker.Read("a", at(5))
	check("a", 60, "5s")
	check("a", 61, "nothing")
	check("b", 61, "nothing")
}
