package progress

import (
	"cmp"
	"fmt"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/internal/terminal"
)

// noStatus is the cause of an object without one.
const noStatus = "no status yet"

// Lines formats a wait as one line per change. The zero Lines is ready to use. It is
// not safe for concurrent use.
type Lines struct {
	last map[string]string // the last line of each object
}

// Line returns the line for a change, without a line end, and whether the object is
// done. The line is empty if it is the same as the last one of the object.
func (l *Lines) Line(p await.Progress, words Words) (text string, done bool) {
	switch p := p.(type) {
	case await.ConnectionLost:
		return "lost the server, trying again: " + terminal.Line(p.Err.Error()), false
	case await.ConnectionRestored:
		return "the server is back", false
	case await.Dropped:
		delete(l.last, keyOf(p.Object))
		if p.Object.Name == "" {
			return "", false // the objects that the selector matches now have lines
		}
		return p.Object.String() + " no longer counts", false
	case await.Status:
		return l.status(p, words)
	}
	return "", false
}

// DoneLine returns the line for an object that is done.
func DoneLine(s await.Status, words Words) string {
	return s.Object.String() + " " + reached(s.Verdict, words)
}

// reached returns the degree of an object that is done. It says so if it is not waited for.
func reached(v await.Verdict, words Words) string {
	if v.Cause != "" {
		return "is not waited for: " + terminal.Line(v.Cause)
	}
	return words.Reached
}

func (l *Lines) status(s await.Status, words Words) (text string, done bool) {
	done = s.Verdict.State == await.Done
	if text = DoneLine(s, words); !done {
		text = fmt.Sprintf("waiting for %s to %s: %s", Name(s.Object), words.Infinitive, cmp.Or(terminal.Line(s.Verdict.Cause), noStatus))
	}
	if l.last == nil {
		l.last = map[string]string{}
	}
	if l.last[keyOf(s.Object)] == text {
		return "", done
	}
	l.last[keyOf(s.Object)] = text
	return text, done
}
