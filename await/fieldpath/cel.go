package fieldpath

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// plain matches a path of field names only, which yields one value or none.
var plain = regexp.MustCompile(`^\{\$?((?:\.[A-Za-z_][A-Za-z0-9_]*)+)\}$`)

// CEL returns an expression over the variable object, in the language of package expression, that is true wherever the
// answer to the question is yes. It may be true elsewhere, too: it treats a number and its text as equal. ok is false if
// there is no such expression: the path has more than field names, or CEL cannot compare the values as needed.
func (q *Question) CEL() (text string, ok bool) {
	m := plain.FindStringSubmatch(q.text)
	if m == nil {
		return "", false
	}
	var path strings.Builder
	path.WriteString("object")
	for name := range strings.SplitSeq(m[1][1:], ".") {
		path.WriteString("[?" + strconv.Quote(name) + "]")
	}
	at := path.String()
	has, value := at+".hasValue()", "dyn("+at+".orValue(dyn(null)))"
	switch q.op {
	case Exists:
		return has, true
	case Absent:
		return value + " == null", true
	case Equals, Differs:
		equal, number, ok := q.equal(value)
		switch {
		case !ok || number && q.op == Differs: // 1e6 is 1000000, and its text is not
			return "", false
		case q.op == Differs:
			return has + " && !(" + equal + ")", true
		}
		return equal, true
	case Less, Greater, AtMost, AtLeast:
	}
	const exact = 1 << 53 // up to which numbers are compared alike by floating point and without
	f, err := strconv.ParseFloat(q.value, 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) >= exact {
		return "", false
	}
	limit := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(limit, ".") {
		limit += ".0"
	}
	return "type(" + value + ") in [int, uint, double] ? " + value + " " + string(q.op) + " " + limit + " : " + has, true
}

// equal returns when a value has the text that is asked for.
func (q *Question) equal(value string) (text string, number, ok bool) {
	v := q.value
	if !utf8.ValidString(v) || v == "" || strings.ContainsAny(v[:1], "[{<") || v == "null" {
		return "", false, false // lists, maps and nothing have texts of their own
	}
	text = value + " == " + strconv.Quote(v)
	if n, err := strconv.ParseInt(v, 10, 64); err == nil && strconv.FormatInt(n, 10) == v {
		return text + " || " + value + " == " + v, true, true
	}
	if _, err := strconv.ParseFloat(v, 64); err == nil {
		return "", false, false
	}
	if v == "true" || v == "false" {
		return text + " || " + value + " == " + v, false, true
	}
	return text, false, true
}
