package cron

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// changes are days on which the clocks of zones change by an hour, forward or back, or not at all. Changes by half an hour,
// as on Lord Howe Island, are not here: package robfig/cron leaves out slots within 24 hours after them.
var changes = []struct{ zone, day string }{
	{"America/New_York", "2026-03-08"},
	{"America/New_York", "2026-11-01"},
	{"Europe/Berlin", "2026-03-29"},
	{"Europe/Berlin", "2026-10-25"},
	{"Australia/Sydney", "2026-04-05"},
	{"Australia/Sydney", "2026-10-04"},
	{"America/Havana", "2026-03-08"},
	{"Africa/Cairo", "2026-04-24"},
	{"Asia/Kolkata", "2026-06-01"},
	{"UTC", "2026-02-28"},
}

// wall is a schedule of a minute and an hour, each a number or, if negative, any.
type wall struct{ minute, hour int }

func (w wall) String() string {
	text := func(n int) string {
		if n < 0 {
			return "*"
		}
		return fmt.Sprint(n)
	}
	return text(w.minute) + " " + text(w.hour) + " * * *"
}

func (w wall) matches(t time.Time) bool {
	return (w.minute < 0 || t.Minute() == w.minute) && (w.hour < 0 || t.Hour() == w.hour)
}

// TestSlotsAroundClockChanges compares the slots of random schedules with all minutes whose local time matches.
func TestSlotsAroundClockChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		c := changes[r.IntN(len(changes))]
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		day, err := time.ParseInLocation(time.DateOnly, c.day, zone)
		if err != nil {
			t.Fatal(err)
		}
		w := wall{r.IntN(60), -1}
		switch r.IntN(3) {
		case 0:
			w.hour = r.IntN(4)
		case 1:
			w = wall{-1, r.IntN(4)}
		}
		one := &batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(day.Add(-time.Duration(r.IntN(36*60)) * time.Minute).Truncate(time.Second))},
			Spec:       batchv1.CronJobSpec{Schedule: w.String(), TimeZone: &c.zone},
		}
		s, err := parse(&one.Spec)
		if err != nil {
			t.Fatal(err)
		}
		end := day.Add(48 * time.Hour)
		var want, got []time.Time
		for m := one.CreationTimestamp.Truncate(time.Minute); m.Before(end); m = m.Add(time.Minute) {
			if m.After(one.CreationTimestamp.Time) && w.matches(m.In(zone)) {
				want = append(want, m.UTC())
			}
		}
		for now := one.CreationTimestamp.Time; now.Before(end); {
			d := decide(one, nil, nil, now)
			if !d.slot.IsZero() {
				got = append(got, d.slot.UTC())
				one.Status.LastScheduleTime = &metav1.Time{Time: d.slot}
			}
			if d.after <= 0 {
				t.Fatalf("%s in %s: at %s the controller looks again in %s", w, c.zone, now, d.after)
			}
			if next := now.Add(d.after - wakeDelay); !next.Equal(s.Next(now)) {
				t.Fatalf("%s in %s: at %s the next slot is %s, want %s", w, c.zone, now, next, s.Next(now))
			}
			now = now.Add(d.after)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s in %s from %s: %d slots, want %d:\n%v\nwant\n%v", w, c.zone, one.CreationTimestamp, len(got), len(want), got, want)
		}
	}
}

// TestLastSlot checks the last slot of random schedules after random times without the controller.
func TestLastSlot(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	schedules := []string{"*/7 * * * *", "0 */5 * * *", "30 6-16/4 * * 1-5", "0 0 1 * *", "15 2 * * 0", "@daily", "@every 90s", "0 0 29 2 *"}
	for range 500 {
		c := changes[r.IntN(len(changes))]
		spec := &batchv1.CronJobSpec{Schedule: schedules[r.IntN(len(schedules))], TimeZone: &c.zone}
		s, err := parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		since := time.Date(2026, 1, 1, 0, 0, r.IntN(366*24*3600), 0, time.UTC)
		now := since.Add(time.Duration(r.Int64N(int64(90 * 24 * time.Hour))))
		slot, missed, err := lastSlot(s, since, now)
		if err != nil {
			t.Fatalf("%+v: %v", spec, err)
		}
		switch {
		case slot.IsZero() && missed == 0 && !s.Next(since).After(now):
			t.Fatalf("%s in %s from %s to %s: no slot, want %s", spec.Schedule, c.zone, since, now, s.Next(since))
		case slot.IsZero():
		case !slot.After(since), slot.After(now), !s.Next(slot).After(now):
			t.Fatalf("%s in %s from %s to %s: slot %s, and the next one is %s", spec.Schedule, c.zone, since, now, slot, s.Next(slot))
		}
	}
}
