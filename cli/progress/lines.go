package progress

import (
	"cmp"
	"fmt"

	"github.com/sampan-io/sampan/await"
)

// Lines tells a wait as a line per change. The zero Lines has told nothing. It is
// not safe for concurrent use.
type Lines struct {
	last map[string]string // by object: the line that was told last
}

// Line returns the line for a piece of news, without a line end, and whether it is
// the good news that the object is done. It is empty for what has been told.
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
			return "", false // what the selector picks now is told
		}
		return p.Object.String() + " no longer counts", false
	case done:
		text = p.Object.String() + " " + words.Reached
	default:
		text = fmt.Sprintf("waiting for %s to %s: %s", Name(p.Object), words.Infinitive, cmp.Or(Clean(p.Verdict.Cause), "no word of it yet"))
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
