package events

import "strings"

// Line makes a message that came from elsewhere fit into a line.
func Line(s string) string {
	if !strings.ContainsAny(s, "\n\t\r") && !strings.Contains(s, "  ") {
		return strings.TrimSpace(s) // as nearly all are: nothing to copy
	}
	return strings.Join(strings.Fields(s), " ")
}

// Reason is what a reason and a message say together.
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
