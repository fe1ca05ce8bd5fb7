package session

import (
	"strings"
	"testing"
)

func TestDetachKeys(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "\x10\x11", // the default
		"ctrl-p,ctrl-q":                      "\x10\x11",
		"ctrl-a":                             "\x01",
		"ctrl-z,d":                           "\x1ad",
		"DEL":                                "\x7f",
		"~,.":                                "~.",
		"A,ctrl-@":                           "A\x00",
		`ctrl-[,ctrl-\,ctrl-],ctrl-^,ctrl-_`: "\x1b\x1c\x1d\x1e\x1f",
	} {
		var k DetachKeys
		if err := k.Set(text); err != nil || string(k.Bytes()) != want {
			t.Errorf("%q: %q, %v, want %q", text, k.Bytes(), err, want)
		}
		if text != "" && k.String() != text {
			t.Errorf("%q is printed as %q", text, k.String())
		}
	}
	var zero DetachKeys
	if zero.String() != "ctrl-p,ctrl-q" || string(zero.Bytes()) != "\x10\x11" {
		t.Errorf("the zero value is %v, %q", &zero, zero.Bytes())
	}
	for text, wrong := range map[string]string{
		"ctrl-1": "ctrl-1", "ctrl-A": "ctrl-A", "ctrl-": "ctrl-", "ctrl-ab": "ctrl-ab", "ctrl-ä": "ctrl-ä", "del": "del", "a,,b": "", "ctrl-p, ctrl-q": " ctrl-q", "é": "é", "ctrl-a,": "",
	} {
		var k DetachKeys
		if err := k.Set(text); err == nil || !strings.HasPrefix(err.Error(), `unknown key "`+wrong+`": must be one ASCII character, ctrl- with one of a-z `) {
			t.Errorf("%q: %v, want the key %q refused", text, err, wrong)
		}
	}
}
