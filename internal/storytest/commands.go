package storytest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A Story is a story while it plays: its clock and its answers.
type Story struct {
	T   *testing.T
	Now time.Time // moved by lines "+DURATION"

	said []string
}

// NewStory returns a story that begins with the year 2026.
func NewStory(t *testing.T) *Story {
	return &Story{T: t, Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// Commands are what the lines of a story may do: by their first word, with the others.
type Commands map[string]func(words []string)

// PlayCommands plays each story in dir like [Play]. Begin returns the commands of one story; their
// results are the answers below their lines.
func PlayCommands(t *testing.T, dir string, begin func(s *Story) Commands) {
	t.Helper()
	Play(t, dir, func(t *testing.T) func(string) []string {
		s := NewStory(t)
		commands := begin(s)
		return func(line string) []string {
			words := strings.Fields(line)
			switch {
			case len(words) == 0:
			case strings.HasPrefix(words[0], "+"):
				s.Now = s.Now.Add(s.Duration(words[0][1:]))
			case commands[words[0]] == nil:
				t.Fatalf("unknown command %q", words[0])
			default:
				commands[words[0]](words[1:])
			}
			said := s.said
			s.said = nil
			return said
		}
	})
}

// Say adds a line to the answer.
func (s *Story) Say(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

// Quietly calls f and forgets what it says.
func (s *Story) Quietly(f func()) {
	said := s.said
	s.said = nil
	f()
	s.said = said
}

// Roll calls step until it returns false and shrinks lines that are said twice in a row
// to one. It fails the test when there is no end to it.
func (s *Story) Roll(step func() (different bool)) {
	for range 100 {
		if !step() {
			s.said = slices.Compact(s.said)
			return
		}
	}
	s.T.Fatalf("it does not end: %v", s.said)
}

// Duration returns the duration that a word stands for.
func (s *Story) Duration(word string) time.Duration {
	d, err := time.ParseDuration(word)
	if err != nil {
		s.T.Fatal(err)
	}
	return d
}

// Pairs yields the name=value words; n is the value as a number, or 0.
func Pairs(words []string, f func(name, value string, n int32)) {
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		n, err := strconv.ParseInt(cmp.Or(value, "0"), 10, 32)
		if err != nil {
			n = 0
		}
		f(name, value, int32(n))
	}
}
