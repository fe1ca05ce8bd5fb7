package terminal

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"":                               "",
		"plain\ttext\n":                  "plain\ttext\n",
		"žluťoučký 日本 ě":                 "žluťoučký 日本 ě",
		"a\x1b[2Jb":                      "a^[[2Jb",
		"real\rfake":                     `real\rfake`,
		"bell\a back\b del\x7f":          `bell\u0007 back\u0008 del\u007f`,
		"\v\f\x00":                       `\u000b\u000c\u0000`,
		"C1 \u009b31m \u0085":            `C1 \u009b31m \u0085`,
		"8 bit \x9b31m \xff":             `8 bit \x9b31m ` + "\xff",
		"\x1b]0;title\a":                 `^[]0;title\u0007`,
		"\u202egpj.exe\u202c":            `\u202egpj.exe\u202c`,
		"\u2066a\u2069\u200e\u200f":      `\u2066a\u2069\u200e\u200f`,
		"\u061ca\u2028b\u2029":           `\u061ca\u2028b\u2029`,
		"\u202a\u202b\u202d\u2067\u2068": `\u202a\u202b\u202d\u2067\u2068`,
		"שלום مرحبا":                     "שלום مرحبا",
		"\x1b]8;;http://x\x1b\\x":        `^[]8;;http://x^[\x`,
	} {
		if got := Escape(in); got != want {
			t.Errorf("Escape(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestLine(t *testing.T) {
	if got, want := Line("a\x1b[2J\r\n b\u202ec\u2028d \xff"), "a?[2J bc d ?"; got != want {
		t.Errorf("Line = %q, want %q", got, want)
	}
}

// TestWriterKeepsCharacters writes a text in two parts, cut at every byte: what arrives is the same.
func TestWriterKeepsCharacters(t *testing.T) {
	text := "a\x1b[1mě\u009b日𝄞\x9bé\n"
	for i := range len(text) {
		var b bytes.Buffer
		w := NewWriter(&b)
		for _, part := range []string{text[:i], text[i:]} {
			if n, err := io.WriteString(w, part); n != len(part) || err != nil {
				t.Errorf("Write = %d, %v, want %d", n, err, len(part))
			}
		}
		if b.String() != Escape(text) {
			t.Errorf("cut at %d: %q, want %q", i, b.String(), Escape(text))
		}
	}
}

// TestWriterKeepsJSON passes encoded JSON through a Writer: its value stays, whatever characters it has.
func TestWriterKeepsJSON(t *testing.T) {
	var all strings.Builder
	for r := range rune(0x3000) {
		all.WriteRune(r)
	}
	data, err := json.Marshal(all.String())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	_, _ = NewWriter(&b).Write(data)
	var got string
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || got != all.String() {
		t.Errorf("%q, %v", got, err)
	}
	if strings.ContainsFunc(b.String(), isEscaped) {
		t.Errorf("there are control characters in %q", b.String())
	}
}

func TestRawAndDataPassFiles(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := NewWriter(f)
	if Raw(w) != f || Data(w) != f || Raw(f) != f || NewWriter(w) != w {
		t.Error("a file that is not a terminal is not reached")
	}
	if _, is := File(w); is {
		t.Error("a file is taken for a terminal")
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a\x1b\u009b\x9b")
	f.Fuzz(func(t *testing.T, s string) {
		once := Escape(s)
		if Escape(once) != once || strings.ContainsFunc(once, isEscaped) || utf8.ValidString(s) && !utf8.ValidString(once) {
			t.Errorf("Escape(%q) = %q", s, once)
		}
	})
}
