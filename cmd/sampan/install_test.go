package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestProgramIsUnpackedAgain damages an unpacked program and its record as a power cut may leave them.
func TestProgramIsUnpackedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	unpacked, version, boot := 0, "v1", "boot1"
	unpack := func(path string) error {
		unpacked++
		return os.WriteFile(path, []byte("whole "+version), 0o755)
	}
	write := func(path, text string) func() {
		return func() {
			if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	nothing := func() {}
	for _, tt := range []struct {
		name   string
		before func()
		again  bool
	}{
		{"first start", nothing, true},
		{"next start", nothing, false},
		{"empty program", write(path, ""), true},
		{"cut program", write(path, "whol"), true},
		{"empty record", write(path+".id", ""), true},
		{"record of an older version", write(path+".id", version), true},
		{"no program", func() { _ = os.Remove(path) }, true},
		{"another version", func() { version = "v2" }, true},
		{"after another boot, wrong contents of the right size", func() { boot = "boot2"; write(path, "........")() }, true},
		{"next start", nothing, false},
		{"no boot known", func() { boot = "" }, true},
		{"no boot known, next start", nothing, true},
	} {
		tt.before()
		count := unpacked
		if err := install(path, version, boot, unpack); err != nil {
			t.Fatal(err)
		}
		if got := unpacked > count; got != tt.again {
			t.Errorf("%s: unpacked %v, want %v", tt.name, got, tt.again)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "whole "+version {
			t.Errorf("%s: the program is %q, %v", tt.name, text, err)
		}
	}
}
