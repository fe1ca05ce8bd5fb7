package progress

import (
	"io"
	"strconv"
	"strings"
)

// A Screen keeps a picture at the bottom of a terminal. It is not safe for
// concurrent use. The caller must close it.
type Screen struct {
	w     io.Writer
	shown []int // widths of the lines of the picture on the terminal
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

// Draw replaces the picture by these lines, in one write (P3). width is the current width of the terminal. A terminal
// that has become narrower has wrapped the old lines; Draw takes that into account.
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

// home moves the cursor to the first line of the picture.
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

// Clear removes the picture and shows the cursor, so that other output can be written in its place. That output must end
// with a line end; the next Draw puts the picture below it.
func (s *Screen) Clear(width int) error {
	if len(s.shown) == 0 {
		return nil
	}
	return s.Draw(nil, width)
}

// Close removes the picture for good (P4).
func (s *Screen) Close(width int) error { return s.Clear(width) }

// uncolored removes the colours that a Tree adds.
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
