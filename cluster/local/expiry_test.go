package local

import (
	"strings"
	"testing"
	"time"
)

func TestExpiryIsKept(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hour := Expiry{After: "1h", At: now.Add(time.Hour)}
	for _, tt := range []struct {
		saved Expiry
		asked string
		want  Expiry
	}{
		{Expiry{}, "", Expiry{}},
		{Expiry{}, "1h", hour},
		{Expiry{}, NoExpiry, Expiry{}},
		{Expiry{After: "5m", At: now}, "1h", hour},
		{hour, "", hour}, // a start does not lengthen its life
		{hour, NoExpiry, Expiry{}},
	} {
		if got := tt.saved.with(Expiry{After: tt.asked}, now); got != tt.want {
			t.Errorf("%v with %q: %v, want %v", tt.saved, tt.asked, got, tt.want)
		}
	}
	for _, bad := range []string{"-1h", "0", "0s", "x", "1", "999ms", "99999999h"} {
		if err := (Expiry{After: bad}).check(); err == nil || !strings.Contains(err.Error(), "--expires: must be a duration >= 1s and <= 2562047h") {
			t.Errorf("--expires=%s: %v", bad, err)
		}
	}
}

func TestExpiredClusterIsKept(t *testing.T) {
	now := time.Now()
	p, s := Profile{Name: "ci", DataDir: "/data/ci"}, Settings{Expiry: Expiry{After: "1h", At: now}}
	if err := p.CheckExpired(s, 0, now.Add(-time.Second)); err != nil {
		t.Error(err)
	}
	err := p.CheckExpired(s, 0, now)
	if err == nil || !strings.Contains(err.Error(), "`sampan down --purge --name=ci`") {
		t.Errorf("an expired cluster: %v", err)
	}
	s.Fleet = "ci"
	err = p.CheckExpired(s, 3, now)
	for _, advice := range []string{"`sampan down --purge --clusters --name=ci`", "`sampan up --clusters=3 --name=ci --expires=none`"} {
		if err == nil || !strings.Contains(err.Error(), advice) {
			t.Errorf("an expired cluster of several: %v, want %s", err, advice)
		}
	}
	if err == nil || !strings.Contains(err.Error(), "/data/ci") || !strings.Contains(err.Error(), "--expires=none") {
		t.Errorf("an expired cluster: %v", err)
	}
}
