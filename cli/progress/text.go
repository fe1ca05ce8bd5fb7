package progress

import (
	"fmt"
	"time"
	"unicode"
)

// columns returns how many columns of a terminal a character takes.
func columns(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf && r != 0x303f, r >= 0xac00 && r <= 0xd7a3,
		r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6,
		r >= 0x1f300 && r <= 0x1f64f, r >= 0x1f900 && r <= 0x1f9ff, r >= 0x20000 && r <= 0x3fffd:
		return 2 // wide by Unicode's annex 11
	}
	return 1
}

func widthOf(s string) int {
	n := 0
	for _, r := range s {
		n += columns(r)
	}
	return n
}

// cut shortens s to width columns, with more at the end of shortened text.
func cut(s string, width int, more string) string {
	if widthOf(s) <= width {
		return s
	}
	room := width - widthOf(more)
	if room < 0 {
		return ""
	}
	end, used := 0, 0
	for i, r := range s {
		if used += columns(r); used > room {
			break
		}
		end = i + len(string(r))
	}
	return s[:end] + more
}

// Elapsed formats a duration in its two largest units: 7s, 1m05s, 2h03m.
func Elapsed(d time.Duration) string {
	s := int(max(d, 0) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
}
