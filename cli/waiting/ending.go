package waiting

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/progress"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/internal/terminal"
)

// Failure returns the error of an ending, nil if all objects are done.
func (e Ending) Failure(talk Talk) error {
	var misuse *await.MisuseError
	switch {
	case e.aborted:
		return nil // the ending of another request has the reason
	case errors.As(e.Err, &misuse):
		return fmt.Errorf("%s=%s: %w", cmp.Or(talk.flag, "--for"), e.request.For, e.Err)
	case e.Err != nil:
		return e.Err
	}
	var errs []error
	switch e.Outcome.Result {
	case await.AllDone:
		return nil
	case await.NothingMatched:
		return exit.With(exit.Gone, errors.New("no matching resources found"))
	case await.Vanished:
		for _, p := range e.Outcome.Objects {
			switch {
			case !p.Absent:
			case p.Object.UID == "":
				errs = append(errs, apierrors.NewNotFound(p.Object.Resource.GroupResource(), p.Object.Name))
			default:
				errs = append(errs, fmt.Errorf("%s was deleted while it was waited for", p.Object))
			}
		}
		return exit.With(exit.Gone, errors.Join(errs...))
	case await.SomeFailed:
		code := exit.RolledBack // if that is all that failed
		for _, p := range e.Outcome.Objects {
			if decisive := e.decisive(); decisive(p) && !p.Verdict.RolledBack {
				code = exit.Failed
			}
		}
		return exit.With(code, e.reports(e.decisive()))
	case await.TimedOut:
		err := e.reports(func(p await.Status) bool { return p.Verdict.State != await.Done })
		if err == nil {
			err = errors.New("timed out waiting: " + whyNothing(e))
		}
		return exit.With(exit.TimedOut, err)
	}
	return fmt.Errorf("the wait ended in an unknown way: %v", e.Outcome.Result)
}

// unfinished returns an error of one line that names the objects that were not done when others ended the wait, with their
// causes; nil if there are none.
func unfinished(ends []Ending) error {
	const most = 5
	var (
		open  []string
		more  int
		state string
	)
	if !slices.ContainsFunc(ends, func(e Ending) bool { return !e.aborted && e.Outcome.Result != await.AllDone }) {
		return nil // another request is done, which is enough
	}
	for _, e := range ends {
		if !e.aborted && e.Outcome.Result != await.SomeFailed {
			continue // all that is not done is reported
		}
		reported := e.decisive()
		for _, p := range e.Outcome.Objects {
			if p.Verdict.State == await.Done || !e.aborted && reported(p) {
				continue
			}
			if len(open) == most {
				more++
				continue
			}
			text := p.Object.String()
			if cause := terminal.Line(p.Verdict.Cause); cause != "" {
				text += ": " + cause
			}
			open = append(open, text)
			word, is := strings.CutPrefix(e.words.Infinitive, "be ")
			if !is || strings.Contains(word, " ") || state != "" && state != word {
				word = "done"
			}
			state = word
		}
	}
	if len(open) == 0 {
		return nil
	}
	if more > 0 {
		open = append(open, fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("not %s yet: %s", state, strings.Join(open, "; "))
}

// decisive returns a function that selects the failures that ended the wait: the certain ones, unless all failures end it.
func (e Ending) decisive() func(await.Status) bool {
	certain := func(p await.Status) bool {
		return p.Verdict.State == await.Failed && p.Verdict.Certainty == await.Certain
	}
	if e.request.Fail != await.FailAtOnce && slices.ContainsFunc(e.Outcome.Objects, certain) {
		return certain
	}
	return func(p await.Status) bool { return p.Verdict.State == await.Failed }
}

func whyNothing(e Ending) string {
	if e.request.Count > 0 {
		return fmt.Sprintf("%d of %d are there", len(e.Outcome.Objects), e.request.Count)
	}
	if e.request.Missing || e.request.For == await.Created {
		return "nothing matches yet"
	}
	return "nothing matches any more"
}

// Objects that are not done are grouped by their cause if there are more than eachReported.
const (
	eachReported = 5  // the number of objects up to which each has its own report
	fullReports  = 5  // the number of groups with a complete report
	allReports   = 20 // the number of groups with at least one line
)

// reports joins the reports of the selected objects.
func (e Ending) reports(selected func(await.Status) bool) error {
	all := slices.DeleteFunc(slices.Clone(e.Outcome.Objects), func(p await.Status) bool { return !selected(p) })
	if len(all) == 0 {
		return nil
	}
	groups := progress.Alike(all, func(p await.Status) (await.Ref, string) { return p.Object, terminal.Line(p.Verdict.Cause) })
	if len(all) <= eachReported {
		groups = slices.Collect(slices.Chunk(all, 1))
	}
	var (
		errs []error
		more int
		now  = time.Now()
	)
	for n, g := range groups {
		if n >= allReports {
			more += len(g)
			continue
		}
		lines := progress.Report(g[0], e.Outcome.Result, e.words, e.hint, now)
		if n >= fullReports {
			lines = lines[:1]
		}
		if len(g) > 1 {
			lines = slices.Insert(lines, 1, "  and the same of "+progress.Names(refsOf(g[1:]), namedOthers))
		}
		errs = append(errs, errors.New(strings.Join(lines, "\n")))
	}
	if more > 0 {
		errs = append(errs, fmt.Errorf("and %d more, for other causes; -o json lists them all", more))
	}
	if e.refused != "" {
		errs = append(errs, errors.New("the server refuses writes: "+terminal.Line(e.refused)))
	}
	return errors.Join(errs...)
}

// namedOthers is how many objects of a group are listed by name after the first.
const namedOthers = 3

func refsOf(all []await.Status) []await.Ref {
	refs := make([]await.Ref, len(all))
	for i, p := range all {
		refs[i] = p.Object
	}
	return refs
}

// detached prints which objects are not done after an interrupt.
func detached(s *session.Session, ends []Ending, talk Talk) {
	const most = 5
	var (
		open []string
		args = map[string][]string{} // by namespace
		n    int
	)
	for _, e := range ends {
		for _, p := range e.Outcome.Objects {
			if p.Verdict.State == await.Done {
				continue
			}
			n++
			if n <= most {
				text := fmt.Sprintf("  %s to %s", p.Object, e.words.Infinitive)
				if p.Verdict.Cause != "" {
					text += ": " + terminal.Line(p.Verdict.Cause)
				}
				open = append(open, text)
				kind, _, _ := strings.Cut(p.Object.String(), "/")
				args[p.Object.Namespace] = append(args[p.Object.Namespace], kind+"/"+p.Object.Name)
			}
		}
	}
	_, _ = fmt.Fprintln(s.Err, "interrupted: nothing is undone, and the cluster goes on without this command")
	if n == 0 {
		return
	}
	_, _ = fmt.Fprintln(s.Err, "not done yet:")
	for _, l := range open {
		_, _ = fmt.Fprintln(s.Err, l)
	}
	if n > most {
		_, _ = fmt.Fprintf(s.Err, "  and %d more\n", n-most)
		return
	}
	if len(args) == 1 && len(ends) == 1 && !strings.ContainsAny(ends[0].request.For.String(), " '\"$`\\{}()") {
		for namespace, names := range args {
			slices.Sort(names)
			_, _ = fmt.Fprintf(s.Err, "'%s %s --for=%s' waits again\n", s.Hint("wait", namespace), strings.Join(names, " "), ends[0].request.For)
		}
	}
}
