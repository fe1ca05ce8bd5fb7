package blocking

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The parameters of a blocking read.
const (
	ParamUntil   = "until"
	ParamMissing = "untilMissing"
	ParamTimeout = "timeoutSeconds"
)

const (
	// DefaultTimeout is the time of a question that names none.
	DefaultTimeout = time.Minute
	// MaxTimeout is the longest time that may be asked for.
	MaxTimeout = time.Hour

	maxOutcomes = 8
)

// Names of outcomes that have no name of their own.
const (
	Done   = "done"   // of an expression without a name
	Absent = "absent" // of a question that there be no object
)

// Missing says what it means that the object, or any object of the collection, does not
// exist.
type Missing string

// Meanings of absence.
const (
	Fail  Missing = "fail" // the question fails: what a named object is asked for by default
	Stay  Missing = "wait" // it may yet come, or come again: the default for collections
	Ended Missing = "done" // it is the outcome Absent
)

// An Outcome is one of the things that are waited for.
type Outcome struct {
	Name string
	Text string // the expression
	Any  bool   // of a collection: one object is enough
}

// A Question is the condition of a blocking read.
type Question struct {
	Outcomes []Outcome // the first that comes true is the answer; empty if absence alone is asked for
	Missing  Missing
	Timeout  time.Duration // 0 means that the question is answered at once
}

// Asked reports whether the parameters are those of a blocking read.
func Asked(q url.Values) bool { return q.Has(ParamUntil) || q.Has(ParamMissing) }

var (
	outcomeName = regexp.MustCompile(`^([a-z][a-z0-9-]{0,31}):`)
	quantifier  = regexp.MustCompile(`^(any|all):`)
)

// An InvalidError has all faults of a question.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return strings.ReplaceAll(e.Err.Error(), "\n", "; ") }
func (e *InvalidError) Unwrap() error { return e.Err }

// Parse reads a question about one object or about a collection. Its error is an
// [*InvalidError]; the expressions are compiled by [Waiters.Wait].
//
//	until=[NAME:][any:|all:]EXPRESSION   as often as there are outcomes
//	untilMissing=fail|wait|done
//	timeoutSeconds=SECONDS
func Parse(q url.Values, collection bool) (Question, error) {
	question := Question{Missing: Fail, Timeout: DefaultTimeout}
	if collection {
		question.Missing = Stay
	}
	var errs []error
	for _, text := range q[ParamUntil] {
		o, err := outcome(text, collection)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", ParamUntil, err))
		}
		question.Outcomes = append(question.Outcomes, o)
	}
	if len(question.Outcomes) > maxOutcomes {
		errs = append(errs, fmt.Errorf("%s: %d outcomes, want at most %d", ParamUntil, len(question.Outcomes), maxOutcomes))
	}
	if q.Has(ParamMissing) {
		switch m := Missing(q.Get(ParamMissing)); m {
		case Fail, Stay, Ended:
			question.Missing = m
		default:
			errs = append(errs, fmt.Errorf("%s: %q, want fail, wait or done", ParamMissing, m))
		}
	}
	if len(q[ParamUntil]) == 0 && question.Missing != Ended {
		errs = append(errs, fmt.Errorf("%s is missing: pass an expression to wait for, or %s=done to wait for the deletion of all objects", ParamUntil, ParamMissing))
	}
	if q.Has(ParamTimeout) {
		seconds, err := strconv.ParseInt(q.Get(ParamTimeout), 10, 64)
		if err != nil || seconds < 0 || seconds > int64(MaxTimeout/time.Second) {
			errs = append(errs, fmt.Errorf("%s: %q, want a number of seconds from 0 to %d", ParamTimeout, q.Get(ParamTimeout), MaxTimeout/time.Second))
		}
		question.Timeout = time.Duration(seconds) * time.Second
	}
	if err := errors.Join(errs...); err != nil {
		return Question{}, &InvalidError{err}
	}
	return question, nil
}

func outcome(text string, collection bool) (Outcome, error) {
	o := Outcome{Name: Done, Text: text}
	if m := outcomeName.FindStringSubmatch(text); m != nil && !quantifier.MatchString(text) {
		o.Name, o.Text = m[1], strings.TrimPrefix(text, m[0])
	}
	if m := quantifier.FindStringSubmatch(o.Text); m != nil {
		if !collection {
			return o, fmt.Errorf("%s can only be used for a collection", m[0])
		}
		o.Any, o.Text = m[1] == "any", strings.TrimPrefix(o.Text, m[0])
	}
	o.Text = strings.TrimSpace(o.Text)
	return o, nil
}
