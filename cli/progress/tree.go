package progress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/internal/plural"
	"github.com/sampan-io/sampan/internal/terminal"
)

// Words are the phrases for a degree in messages.
type Words struct {
	Infinitive string // "be ready", as in "waiting for it to be ready"
	Reached    string // "is ready", as in "pod/x is ready"
}

// WordsOf returns the phrases for a degree.
func WordsOf(d await.Degree) Words { return Words{d.Infinitive(), d.Reached()} }

// A Style is the abilities of a terminal. The zero Style suits every terminal.
type Style struct {
	Color   bool // colours may be used
	Unicode bool // characters beyond ASCII may be used
}

// A Tree is the picture of one wait. It is not safe for concurrent use.
type Tree struct {
	words   Words
	style   Style
	began   time.Time
	timeout time.Duration

	rows  []*row // in order of appearance
	byKey map[string]*row
	lost  string    // why the server cannot be reached; empty if it can
	since time.Time // since when
}

// A row is one object.
type row struct {
	words   Words
	ref     await.Ref
	verdict await.Verdict
	parts   []await.Part
	more    int       // the number of further parts
	since   time.Time // since when it has this verdict
}

// NewTree returns the picture of a wait that begins now, with words in its title. A timeout of 0 means none.
func NewTree(words Words, style Style, now time.Time, timeout time.Duration) *Tree {
	return &Tree{words: words, style: style, began: now, timeout: timeout, byKey: map[string]*row{}}
}

func keyOf(r await.Ref) string {
	return r.Resource.Group + "/" + r.Resource.Resource + "/" + r.Namespace + "/" + r.Name
}

// Update adds a change, with the phrases of its degree.
func (t *Tree) Update(p await.Progress, words Words, now time.Time) {
	if lost, is := p.(await.ConnectionLost); is {
		if t.lost == "" {
			t.since = now
		}
		t.lost = terminal.Line(lost.Err.Error())
		return
	}
	t.lost = ""
	switch p := p.(type) {
	case await.Dropped:
		r := t.byKey[keyOf(p.Object)]
		delete(t.byKey, keyOf(p.Object))
		t.rows = slices.DeleteFunc(t.rows, func(o *row) bool { return o == r })
	case await.Status:
		r := t.byKey[keyOf(p.Object)]
		if r == nil {
			r = &row{since: now}
			t.byKey[keyOf(p.Object)] = r
			t.rows = append(t.rows, r)
		}
		if r.verdict != p.Verdict {
			r.since = now
		}
		r.words, r.ref, r.verdict, r.parts, r.more = words, p.Object, p.Verdict, p.Parts, p.More
	}
}

// Counts returns how many objects there are in each state.
func (t *Tree) Counts() (done, failing, waiting int) {
	for _, r := range t.rows {
		switch r.verdict.State {
		case await.Done:
			done++
		case await.Failed:
			failing++
		case await.Waiting:
			waiting++
		}
	}
	return done, failing, waiting
}

// SGR colours.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	faint  = "2"
)

// A line is text with a sign before and a time after it. The text is cut if there is not enough space.
type line struct {
	indent string
	sign   string
	color  string
	text   string
	tail   string
}

func (t *Tree) paint(color, s string) string {
	if !t.style.Color || color == "" || s == "" {
		return s
	}
	return "\x1b[" + color + "m" + s + "\x1b[0m"
}

func (t *Tree) choose(unicode, ascii string) string {
	if t.style.Unicode {
		return unicode
	}
	return ascii
}

func (t *Tree) render(l line, width int) string {
	more := t.choose("…", "...")
	head := l.indent
	if l.sign != "" {
		head += l.sign + " "
	}
	room := width - widthOf(head)
	tail := ""
	if l.tail != "" && widthOf(l.tail)+2 <= room/2 {
		tail = "  " + l.tail
	}
	if room <= 0 {
		return cut(head, width, "")
	}
	text := cut(l.text, room-widthOf(tail), more)
	if l.sign != "" {
		head = l.indent + t.paint(l.color, l.sign) + " "
	}
	return head + text + t.paint(faint, tail)
}

func (t *Tree) sign(v await.Verdict) (sign, color string) {
	switch v.State {
	case await.Done:
		return t.choose("✓", "+"), green
	case await.Failed:
		return t.choose("✗", "!"), red
	case await.Waiting:
	}
	return t.choose("•", "*"), yellow
}

// Lines returns the picture: at most height lines, none wider than width. A width
// or height of 0 or less is no limit.
func (t *Tree) Lines(now time.Time, width, height int) []string {
	if width <= 0 {
		width = 1 << 20
	}
	if height <= 0 {
		height = 1 << 20
	}
	head := []line{t.title(now)}
	if t.lost != "" {
		head = append(head, line{sign: "!", color: red, text: "lost the server, trying again: " + t.lost, tail: Elapsed(now.Sub(t.since))})
	}
	body := t.body(now, max(height-len(head), 0))
	all := append(head, body...)
	all = all[:min(len(all), height)]
	out := make([]string, len(all))
	for i, l := range all {
		out[i] = t.render(l, width)
	}
	return out
}

func (t *Tree) title(now time.Time) line {
	took := Elapsed(now.Sub(t.began))
	if t.timeout > 0 {
		took += " of " + Elapsed(t.timeout)
	}
	done, failing, _ := t.Counts()
	text := "Waiting for " + plural.Count(len(t.rows), "object") + " to " + t.words.Infinitive
	if len(t.rows) == 0 {
		text = "Waiting for objects to " + t.words.Infinitive
	}
	if len(t.rows) > 1 {
		text += fmt.Sprintf(": %d done", done)
		if failing > 0 {
			text += fmt.Sprintf(", %d failing", failing)
		}
	}
	return line{text: text, tail: took}
}

// body returns the lines of the objects, at most height. If they do not fit, it omits in this order: parts beyond the
// worst three, parts beyond the worst one, done objects, all parts, and then objects that have not failed.
func (t *Tree) body(now time.Time, height int) []line {
	var open []*row
	for _, r := range t.rows {
		if r.verdict.State != await.Done {
			open = append(open, r)
		}
	}
	const all = 1 << 30
	for _, try := range []struct {
		rows  []*row
		parts int
	}{{t.rows, all}, {t.rows, 3}, {t.rows, 1}, {open, 3}, {open, 1}, {open, 0}} {
		lines := t.objects(try.rows, now, try.parts, height)
		if rest := t.rest(try.rows); rest.text != "" {
			lines = append(lines, rest)
		}
		if len(lines) <= height {
			return lines
		}
	}
	slices.SortStableFunc(open, func(a, b *row) int { return cmp.Compare(badness(a.verdict), badness(b.verdict)) })
	shown := open[:max(min(height-1, len(open)), 0)]
	lines := append(t.objects(shown, now, 0, height), t.rest(shown))
	return lines[:min(len(lines), max(height, 0))]
}

func badness(v await.Verdict) int {
	switch {
	case v.State == await.Failed && v.Certainty == await.Certain:
		return 0
	case v.State == await.Failed:
		return 1
	}
	return 2
}

// objects returns the lines of rows. It stops when it has more lines than enough.
func (t *Tree) objects(rows []*row, now time.Time, parts, enough int) []line {
	several := false
	for _, r := range t.rows {
		several = several || r.ref.Namespace != t.rows[0].ref.Namespace
	}
	var lines []line
	for _, r := range rows {
		if len(lines) > enough {
			break
		}
		sign, color := t.sign(r.verdict)
		name := Name(r.ref)
		if several && r.ref.Namespace != "" {
			name += " in " + r.ref.Namespace
		}
		l := line{sign: sign, color: color, text: terminal.Line(name), tail: Elapsed(now.Sub(r.since))}
		switch {
		case r.verdict.State == await.Done:
			l.text += " " + reached(r.verdict, r.words)
			l.tail = ""
		case r.verdict.Cause != "":
			l.text += ": " + terminal.Line(r.verdict.Cause)
		}
		lines = append(lines, l)
		if r.verdict.State != await.Done {
			lines = t.branch(lines, "  ", r.parts, r.more, parts)
		}
	}
	return lines
}

// branch appends the lines of parts, at most limit of them on each level. more is the number of parts that are not in
// parts.
func (t *Tree) branch(lines []line, indent string, parts []await.Part, more, limit int) []line {
	shown := parts[:min(limit, len(parts))]
	left := len(parts) - len(shown) + more
	for i, p := range shown {
		fork, stem := t.choose("├ ", "|- "), t.choose("│ ", "|  ")
		if i == len(shown)-1 && left == 0 {
			fork, stem = t.choose("└ ", "`- "), t.choose("  ", "   ")
		}
		sign, color := t.sign(p.Verdict)
		l := line{indent: indent + fork, sign: sign, color: color, text: terminal.Line(p.Object.String())}
		if p.Verdict.Cause != "" {
			l.text += ": " + terminal.Line(p.Verdict.Cause)
		}
		lines = append(lines, l)
		lines = t.branch(lines, indent+stem, p.Parts, p.More, limit)
	}
	if left > 0 && limit > 0 {
		lines = append(lines, line{indent: indent + t.choose("└ ", "`- "), text: fmt.Sprintf("and %d more", left)})
	}
	return lines
}

// rest returns a line with the numbers of objects that are not shown.
func (t *Tree) rest(shown []*row) line {
	done, failing, waiting := t.Counts()
	for _, r := range shown {
		switch r.verdict.State {
		case await.Done:
			done--
		case await.Failed:
			failing--
		case await.Waiting:
			waiting--
		}
	}
	var kinds []string
	for _, k := range []struct {
		n    int
		word string
	}{{failing, "failing"}, {waiting, "waiting"}, {done, "done"}} {
		if k.n > 0 {
			kinds = append(kinds, fmt.Sprintf("%d %s", k.n, k.word))
		}
	}
	if len(kinds) == 0 {
		return line{}
	}
	return line{text: "and " + strings.Join(kinds, ", ")}
}
