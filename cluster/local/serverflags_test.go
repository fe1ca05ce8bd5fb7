package local

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestServerFlagsAreKeptAndTakenBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(name, value string) Settings {
		s := Settings{NodeName: "boat", SimulatedNodes: 1}
		s.Server.Set(name, value)
		return s
	}
	const name = "encryption-provider-config"
	p := profile(t)
	if err := os.MkdirAll(p.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	first, err := p.Settle(ask(name, file), nil)
	if err != nil || first.Server.Get(name) != file {
		t.Fatalf("Settle = %+v, %v", first, err)
	}
	if err := p.Keep(first); err != nil {
		t.Fatal(err)
	}
	if again, err := p.Settle(Settings{}, nil); err != nil || !reflect.DeepEqual(again, first) {
		t.Errorf("the kept settings are %+v, %v", again, err)
	}
	if err := p.Differ(Settings{}); err != nil {
		t.Errorf("without flags: %v", err)
	}
	if err := p.Differ(ask(name, None)); err == nil || !strings.Contains(err.Error(), "--"+name+"="+file+", not none") {
		t.Errorf("with another value: %v", err)
	}
	if s, err := p.Settle(ask(name, None), nil); err != nil || s.Server != "" {
		t.Errorf("taken back: %q, %v", s.Server, err)
	}
	if _, err := p.Settle(ask("no-such-flag", "x"), nil); err == nil {
		t.Error("an unknown flag is kept")
	}
	if got := first.Server.Args(); len(got) != 1 || got[0] != "--"+name+"="+file {
		t.Errorf("Args = %q", got)
	}
	if data, err := json.Marshal(Settings{}); err != nil || strings.Contains(string(data), "apiServer") {
		t.Errorf("without flags the settings are %s, %v", data, err)
	}
}

func TestServerFlagsAreChecked(t *testing.T) {
	for _, tt := range []struct {
		kind        FlagKind
		value, want string // empty: refused
	}{
		{Number, "7", "7"},
		{Number, "x", ""},
		{Switch, "1", "true"},
		{Switch, "maybe", ""},
		{Period, "90s", "1m30s"},
		{Period, "5", ""},
		{Fraction, "0.5", "0.5"},
		{Fraction, "half", ""},
		{Text, "a\nb=c", ""},
		{InputFile, "/no/such/file", ""},
		{OutputFile, "/no/such/file", "/no/such/file"},
		{OutputFile, "-", "-"},
		{InputFile, "", ""},
		{InputFile, "none", "none"},
	} {
		got, err := ServerFlag{Name: "f", Kind: tt.kind}.Parse(tt.value)
		if tt.want == "" != (err != nil) || err == nil && got != tt.want {
			t.Errorf("%s %q = %q, %v, want %q", tt.kind, tt.value, got, err, tt.want)
		}
	}
}
