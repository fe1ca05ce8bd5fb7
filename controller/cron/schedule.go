package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // zones are known on machines without a database of them, too

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
)

const (
	// wakeDelay is how long after a slot the controller looks, as upstream does.
	wakeDelay = 100 * time.Millisecond

	// manySlots is more missed slots than there are without a fault, such as a clock that is wrong.
	manySlots = 100
)

// errNoInterval is the error of a schedule without slots, such as that of each 31 February.
var errNoInterval = errors.New("time difference between two schedules is less than 1 second")

// namesZone reports whether a schedule has its time zone in itself, which new ones must not.
func namesZone(schedule string) bool { return strings.Contains(schedule, "TZ") }

// parse returns the schedule of a CronJob, in its time zone.
func parse(spec *batchv1.CronJobSpec) (s cron.Schedule, err error) {
	defer func() {
		if r := recover(); r != nil { // the parser panics on a few
			s, err = nil, fmt.Errorf("invalid schedule format: %v", r)
		}
	}()
	text := spec.Schedule
	if spec.TimeZone != nil && !namesZone(text) {
		if _, err := time.LoadLocation(*spec.TimeZone); err == nil {
			text = fmt.Sprintf("TZ=%s %s", *spec.TimeZone, text)
		}
	}
	return cron.ParseStandard(text)
}

// lastSlot returns the last slot after since that is not after now; zero if there is none. Missed estimates how many slots
// passed before it, from the interval between the first two, and is 0 if fewer than two slots passed.
//
// The search begins where the slots would be if all intervals were alike, as upstream's does. A schedule with very
// different intervals can have a last slot before that; it is not found then.
func lastSlot(s cron.Schedule, since, now time.Time) (slot time.Time, missed int64, err error) {
	first := s.Next(since)
	if now.Before(first) {
		return time.Time{}, 0, nil
	}
	second := s.Next(first)
	if now.Before(second) {
		return first, 0, nil
	}
	interval := second.Sub(first).Round(time.Second)
	if interval < time.Second {
		return time.Time{}, 0, errNoInterval
	}
	missed = int64(now.Sub(first)/interval) + 1
	from := first.Add(time.Duration(missed-2) * interval)
	for t := s.Next(from); !t.IsZero() && !t.After(now); t = s.Next(t) {
		slot = t
	}
	return slot, missed, nil
}

// begin returns the time after which slots count: of the last one that a job was made for, or of the creation.
func begin(c *batchv1.CronJob) time.Time {
	if last := c.Status.LastScheduleTime; last != nil {
		return last.Time
	}
	return c.CreationTimestamp.Time
}

// untilNext returns how long it is until the controller is to look for the next slot.
func untilNext(c *batchv1.CronJob, s cron.Schedule, now time.Time) time.Duration {
	since := begin(c)
	slot, missed, err := lastSlot(s, since, now)
	switch {
	case err == nil && !slot.IsZero():
		since = slot
	case err != nil || missed > 0:
		since = now
	}
	return s.Next(since).Add(wakeDelay).Sub(now)
}
