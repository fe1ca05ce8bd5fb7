package events

import "strings"

// Line replaces each run of white space in a message by one space.
func Line(s string) string {
	if !strings.ContainsAny(s, "\n\t\r") && !strings.Contains(s, "  ") {
		return strings.TrimSpace(s) // the common case, without a copy
	}
	return strings.Join(strings.Fields(s), " ")
}

// Reason joins a reason and a message, without saying the same twice.
func Reason(r, message string) string {
	message = Line(message)
	switch {
	case r == "":
		return message
	case message == "" || message == r:
		return r
	}
	return r + ": " + message
}
