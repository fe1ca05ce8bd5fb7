package local

import (
	"strings"
	"testing"
	"time"
)

func TestHistorySettings(t *testing.T) {
	stored := HistorySettings{Keep: "24h", Max: "2Gi"}
	for asked, want := range map[HistorySettings]HistorySettings{
		{}:                        stored,
		{Keep: "48h"}:             {Keep: "48h", Max: "2Gi"},
		{Max: "512Mi"}:            {Keep: "24h", Max: "512Mi"},
		{Keep: NoHistory}:         {Max: "2Gi"},
		{Keep: "0", Max: "512Mi"}: {Max: "512Mi"},
	} {
		if got := stored.with(asked); got != want {
			t.Errorf("%+v: got %+v, want %+v", asked, got, want)
		}
	}
	if stored.Window() != 24*time.Hour || stored.Bytes() != 2<<30 {
		t.Errorf("%v, %d", stored.Window(), stored.Bytes())
	}
	if off := (HistorySettings{}); off.Window() != 0 || off.Bytes() != 1<<30 || off.check() != nil {
		t.Errorf("%v, %d, %v", off.Window(), off.Bytes(), off.check())
	}
	for bad, want := range map[HistorySettings]string{
		{Keep: "1s"}:   "--history: must be a duration >= 1m0s",
		{Keep: "day"}:  `--history: must be a duration >= 1m0s, such as 24h, or none, got "day"`,
		{Max: "64Mi"}:  `--history-max: must be a size >= 128Mi and < 8Ei, such as 1Gi, got "64Mi"`,
		{Max: "10Ei"}:  `--history-max: must be a size >= 128Mi and < 8Ei, such as 1Gi, got "10Ei"`,
		{Max: "large"}: "--history-max: must be a size",
	} {
		if err := bad.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", bad, err, want)
		}
	}
}
