package progress

import (
	"cmp"
	"fmt"

	"github.com/sampan-io/sampan/await"
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
	done = p.Verdict.State == await.Done && p.Lost == nil && !p.Back && !p.Gone
	switch {
	case p.Lost != nil:
		return "lost the server, trying again: " + Clean(p.Lost.Error()), false
	case p.Back:
		return "the server is back", false
	case p.Gone:
		delete(l.last, keyOf(p.Object))
		if p.Object.Name == "" {
			return "", false // the objects that the selector matches now have lines
		}
		return p.Object.String() + " no longer counts", false
	case done:
		text = p.Object.String() + " " + words.Reached
	default:
		text = fmt.Sprintf("waiting for %s to %s: %s", Name(p.Object), words.Infinitive, cmp.Or(Clean(p.Verdict.Cause), noStatus))
	}
	if l.last == nil {
		l.last = map[string]string{}
	}
	if l.last[keyOf(p.Object)] == text {
		return "", done
	}
	l.last[keyOf(p.Object)] = text
	return text, done
}
