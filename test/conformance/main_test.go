package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestPartsAreChosenByName(t *testing.T) {
	if all, err := choose(""); err != nil || len(all) != len(allParts()) {
		t.Errorf("all: %v, %v", all, err)
	}
	if some, err := choose("serial,slow"); err != nil || len(some) != 2 || some[0].name != "serial" || some[1].name != "slow" {
		t.Errorf("some: %v, %v", some, err)
	}
	if _, err := choose("fast"); err == nil || err.Error() != `part "fast": must be parallel, slow or serial` {
		t.Errorf("got %v", err)
	}
}

func TestSerialPartRunsAlone(t *testing.T) {
	got := fmt.Sprint(stages(allParts()))
	if want := fmt.Sprint([][]part{allParts()[:2], allParts()[2:]}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if one := stages(allParts()[2:]); len(one) != 1 {
		t.Errorf("got %v", one)
	}
}

func TestUsageIsReadFromProc(t *testing.T) {
	proc := t.TempDir()
	u := usage{process: "serve", pid: 7}
	if err := u.read(proc); err == nil {
		t.Error("no error for a process that is missing")
	}
	if err := os.Mkdir(filepath.Join(proc, "7"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"stat":   "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 1000 200 30 4 20 0 9 0 100 1 1",
		"status": "Name:\ta) b\nVmHWM:\t  2048 kB\nVmRSS:\t 1024 kB\n",
	} {
		if err := os.WriteFile(filepath.Join(proc, "7", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.read(proc); err != nil || fmt.Sprintf("%.2f %.0f", u.seconds, u.peakMiB) != "12.34 2" {
		t.Errorf("got %+v, %v", u, err)
	}
	later := []usage{{pid: 7, seconds: 20, peakMiB: 3}, {pid: 9, seconds: 5}}
	if d := since([]usage{u, {pid: 8, seconds: 4}}, later); fmt.Sprintf("%.2f %.0f %.0f", d[0].seconds, d[0].peakMiB, d[1].seconds) != "7.66 3 5" {
		t.Errorf("got %+v", d)
	}
}
