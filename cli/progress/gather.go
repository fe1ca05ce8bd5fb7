package progress

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/internal/plural"
)

// A Held is a line that can be joined with others into one.
type Held struct {
	Object await.Ref
	Words  Words
	Cause  string // as [terminal.Line] leaves it
	Gone   bool   // the object no longer counts
	Text   string // the line for this object only
}

// named is how many objects of a group are listed by name.
const named = 3

// Gather returns at most the given number of groups of lines. Objects that wait for the same cause share a line.
func Gather(all []Held, most int) []string {
	groups := Alike(all, func(h Held) (await.Ref, string) {
		return h.Object, fmt.Sprint(h.Gone, h.Words.Infinitive, "\n", h.Cause)
	})
	var lines []string
	left := 0
	for i, g := range groups {
		if i >= most-1 && len(groups) > most {
			left += len(g)
			continue
		}
		if len(g) <= named {
			for _, h := range g {
				lines = append(lines, h.Text)
			}
			continue
		}
		refs := make([]await.Ref, len(g))
		for i := range g {
			refs[i] = g[i].Object
		}
		h := g[0]
		if h.Gone {
			lines = append(lines, fmt.Sprintf("%s no longer %s: %s", plural.Count(len(g), "object"), plural.Choose(len(g), "counts", "count"), Names(refs, named)))
			continue
		}
		about := cmp.Or(h.Cause, noStatus)
		lines = append(lines, fmt.Sprintf("waiting for %s to %s: %s: %s", plural.Count(len(g), "object"), h.Words.Infinitive, Names(refs, named), about))
	}
	if left > 0 {
		lines = append(lines, fmt.Sprintf("waiting for %s, for other causes", plural.Count(left, "more object")))
	}
	return lines
}

// Names returns a list of objects: at most the given number by name, and the count of the others.
func Names(refs []await.Ref, most int) string {
	var list []string
	for _, r := range refs[:min(most, len(refs))] {
		list = append(list, r.String())
	}
	text := strings.Join(list, ", ")
	if more := len(refs) - len(list); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Alike groups items whose text is the same except for the name and UID of their object. The groups are in the order of
// their first members.
func Alike[T any](all []T, said func(T) (await.Ref, string)) [][]T {
	index := map[string]int{}
	var groups [][]T
	for _, one := range all {
		ref, text := said(one)
		key := ref.Resource.Group + "/" + cmp.Or(ref.Kind, ref.Resource.Resource) + "\n" + nameless(nameless(text, ref.Name), string(ref.UID))
		n, there := index[key]
		if !there {
			n = len(groups)
			index[key] = n
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], one)
	}
	return groups
}

// nameless replaces a name in text by a mark, where the name is a whole word.
func nameless(text, name string) string {
	if name == "" {
		return text
	}
	inWord := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' }
	var b strings.Builder
	for {
		i := strings.Index(text, name)
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		after, _ := utf8.DecodeRuneInString(text[i+len(name):])
		b.WriteString(text[:i])
		if inWord(before) || inWord(after) {
			b.WriteString(name)
		} else {
			b.WriteString("\x00") // terminal.Line removes it from all texts
		}
		text = text[i+len(name):]
	}
}
