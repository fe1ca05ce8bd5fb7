package progress

import (
	"io"
	"strconv"
	"strings"
)

// A Screen keeps a picture at the bottom of a terminal. It is not safe for
// concurrent use. Close it.
type Screen struct {
	w     io.Writer
	shown []int // widths of the lines of the picture that stands there
	width int   // of the terminal when it was drawn
}

// NewScreen returns a screen on a terminal; it writes nothing yet.
func NewScreen(terminal io.Writer) *Screen { return &Screen{w: terminal} }

// Control sequences (ECMA-48, and DEC private modes).
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	beginFrame = "\x1b[?2026h" // synchronized output; terminals without it ignore it
	endFrame   = "\x1b[?2026l"
	eraseRight = "\x1b[K"
	eraseBelow = "\x1b[J"
)

// Draw replaces the picture by these lines, in one write (P3). Width is that of the
// terminal now: one that has become narrower has wrapped the old lines, which is
// made up for.
func (s *Screen) Draw(lines []string, width int) error {
	var b strings.Builder
	b.WriteString(beginFrame)
	if len(s.shown) == 0 {
		b.WriteString(hideCursor)
	}
	s.home(&b, width)
	s.shown = s.shown[:0]
	for _, l := range lines {
		b.WriteString(l)
		b.WriteString(eraseRight)
		b.WriteString("\r\n")
		s.shown = append(s.shown, widthOf(uncolored(l)))
	}
	s.width = width
	b.WriteString(eraseBelow)
	if len(lines) == 0 {
		b.WriteString(showCursor)
	}
	b.WriteString(endFrame)
	_, err := io.WriteString(s.w, b.String())
	return err
}

// home moves to where the picture begins.
func (s *Screen) home(b *strings.Builder, width int) {
	rows := 0
	for _, w := range s.shown {
		rows++
		if width > 0 && width < s.width && w > width {
			rows += (w - 1) / width
		}
	}
	b.WriteByte('\r')
	if rows > 0 {
		b.WriteString("\x1b[")
		b.WriteString(strconv.Itoa(rows))
		b.WriteByte('A')
	}
}

// Clear takes the picture away and shows the cursor, so that others can write where
// it was. The next Draw puts it below what they wrote, which must end a line.
func (s *Screen) Clear(width int) error {
	if len(s.shown) == 0 {
		return nil
	}
	return s.Draw(nil, width)
}

// Close takes the picture away for good (P4).
func (s *Screen) Close(width int) error { return s.Clear(width) }

// uncolored takes out the colours that a Tree puts in.
func uncolored(s string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "\x1b[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		_, s, _ = strings.Cut(rest, "m")
	}
}
