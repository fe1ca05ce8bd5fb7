package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Escape returns s with its control characters in a visible form, and so the marks that change the direction of text
// (U+202E and the like) or end a line (U+2028, U+2029): a terminal would show other text than there is. Line ends and tabs stay. ESC becomes ^[ and a carriage
// return \r, as in the tables of kubectl. The others, which kubectl passes on, become \u0007 and the like. That form
// means the same in JSON, so encoded JSON keeps its value. A byte from 0x80 to 0x9f that is not part of a character
// becomes \x9b and the like.
func Escape(s string) string {
	if isClean(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r == '\x1b':
			b.WriteString("^[")
		case r == '\r':
			b.WriteString(`\r`)
		case isEscaped(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		case r == utf8.RuneError && size == 1 && s[0] < 0xa0: // a control character in 8-bit encodings
			fmt.Fprintf(&b, `\x%02x`, s[0])
		default:
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String()
}

// isClean reports whether Escape returns s itself.
func isClean[T string | []byte](s T) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 0x80 && c < 0xa0: // perhaps within a character
			return utf8.ValidString(string(s)) && !strings.ContainsFunc(string(s), isEscaped)
		case c < 0x80 && isEscaped(rune(c)):
			return false
		}
	}
	return true
}

func isEscaped(r rune) bool {
	if r < 0x80 { // most text, without a look at tables
		return (r < ' ' || r == 0x7f) && r != '\n' && r != '\t'
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

// Line returns s as one line of printable characters: runs of white space become a space, control characters become
// question marks, and the marks that change the direction of text are removed, because they could make one name look
// like another.
func Line(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r), r == unicode.ReplacementChar:
			return '?'
		case unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, s)
}

// A Writer writes text as [Escape] has it. It is safe for concurrent use if the writer behind it is.
type Writer struct {
	to io.Writer

	mu   sync.Mutex
	rest []byte // guarded by mu; the beginning of a character at the end of the last write
}

// NewWriter returns a Writer to w; if w is one, it returns w.
func NewWriter(w io.Writer) *Writer {
	if already, is := w.(*Writer); is {
		return already
	}
	return &Writer{to: w}
}

// Write implements io.Writer. It holds back the first bytes of a character until the others follow.
func (w *Writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) == 0 && isClean(b) && endsWhole(b) {
		return w.to.Write(b)
	}
	text := append(w.rest, b...)
	w.rest = nil
	if !endsWhole(text) {
		cut := lastRune(text)
		w.rest = append([]byte(nil), text[cut:]...)
		text = text[:cut]
	}
	if _, err := io.WriteString(w.to, Escape(string(text))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// endsWhole reports whether the last character of b is complete, or cannot become one.
func endsWhole(b []byte) bool { return utf8.FullRune(b[lastRune(b):]) || len(b) == 0 }

// lastRune returns where the last character of b begins.
func lastRune(b []byte) int {
	for i := len(b) - 1; i >= max(0, len(b)-utf8.UTFMax); i-- {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	return max(0, len(b)-1)
}

// Raw returns the stream behind a Writer, for output that must arrive unchanged: that of containers, archives, and the
// pictures that a command draws itself. Any other writer is returned as it is.
func Raw(w io.Writer) io.Writer {
	if escaping, is := w.(*Writer); is {
		return escaping.to
	}
	return w
}

// Data returns a writer for values that programs read, such as those of a JSONPath. They arrive unchanged, except on a
// terminal.
func Data(w io.Writer) io.Writer {
	if _, is := File(w); is {
		return w
	}
	return Raw(w)
}

// File returns the terminal to which w writes, directly or through a [Writer]; false if it is not a terminal.
func File(w io.Writer) (*os.File, bool) {
	f, is := Raw(w).(*os.File)
	if !is || !term.IsTerminal(int(f.Fd())) {
		return nil, false
	}
	return f, true
}
