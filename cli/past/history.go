package past

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/changes"
)

// momentHelp describes the accepted forms of a time.
const momentHelp = "a time such as 2006-01-02T15:04:05Z, a time before now such as 10m, or a revision"

type history struct {
	*session.Globals
	in      session.Input
	since   string
	until   string
	limit   int
	secrets bool
}

// History returns the verb history.
func History(g *session.Globals) *cobra.Command {
	h := &history{Globals: g}
	h.in.Lazy = true
	cmd := &cobra.Command{
		Use:   "history [TYPE[/NAME] [NAME…]]",
		Short: "Show the changes of objects: when, by which user, and which fields",
		Long: "Show the changes of objects, of all objects of a type, or of everything in a namespace, oldest first: when, by which user and\n" +
			"program, and which fields. Without a type, Leases and Events are left out. Values of Secrets are masked.\n\n" +
			"The cluster has to keep its history: sampan up --history=24h.",
		Example: "  sampan history deployment/web\n  sampan history --since=10m -n shop          # what changed before it broke\n  sampan history secrets -A --since=24h",
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&h.in.AllNamespaces, "all-namespaces", "A", false, "show changes in all namespaces")
	f.StringVar(&h.since, "since", "", "show changes after this moment: "+momentHelp)
	f.StringVar(&h.until, "until", "", "show changes up to this moment: "+momentHelp)
	f.IntVar(&h.limit, "limit", 0, "number of the newest changes to show, at most 10000 (default 500)")
	f.BoolVar(&h.secrets, "show-secrets", false, "show the values of Secrets")
	cmd.AddCommand(purgeCommand(g))
	return cmd
}

func (h *history) run(ctx context.Context, args []string) error {
	switch {
	case h.Output != "" && h.Output != "json":
		return fmt.Errorf("-o %s: must be json, with one change per line, or nothing", h.Output)
	case h.limit < 0:
		return fmt.Errorf("--limit: must be >= 1, got %d", h.limit)
	}
	s, err := h.Connect()
	if err != nil {
		return err
	}
	query := url.Values{}
	set := func(name, value string) {
		if value != "" {
			query.Set(name, value)
		}
	}
	set("after", h.since)
	set("to", h.until)
	if h.limit > 0 {
		query.Set("limit", strconv.Itoa(h.limit))
	}
	if h.secrets {
		query.Set("secrets", "plain")
	}
	p := &printer{history: h, out: h.Out}
	if len(args) == 0 {
		if !h.in.AllNamespaces {
			set("namespace", s.Namespace)
		}
		err = p.print(ctx, s, query)
	} else {
		var infos []resource.Info
		if infos, err = s.Infos(ctx, h.in, args); err != nil {
			return err
		}
		for _, i := range infos {
			scope(query, i)
			if err = p.print(ctx, s, query); err != nil {
				break
			}
		}
	}
	if err == nil && p.printed == 0 {
		_, _ = fmt.Fprintln(h.Err, "No changes found"+p.begins()+".")
	}
	return err
}

// scope makes a query one for an object or a type.
func scope(query url.Values, i resource.Info) {
	query.Set("resource", i.Mapping.GroupResource().String())
	query.Set("namespace", i.Namespace)
	query.Set("name", i.Name)
}

// changesOf reads an answer with changes, and calls head and each.
func changesOf(ctx context.Context, s *session.Session, query url.Values, head func(changes.Header), each func(changes.Change) error) (changes.End, error) {
	resp, err := s.Do(ctx, client.RawRequest{Path: changes.Path, Query: query, Endless: true})
	if err != nil {
		return changes.End{}, explained(err)
	}
	defer resp.Body.Close()
	d := json.NewDecoder(resp.Body)
	d.UseNumber()
	var h changes.Header
	if err := d.Decode(&h); err != nil {
		return changes.End{}, fmt.Errorf("reading the history: %w", err)
	}
	head(h)
	for {
		var line struct {
			changes.End
			changes.Change
		}
		switch err := d.Decode(&line); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return changes.End{}, errors.New("reading the history: the server ended the answer too early")
		case err != nil:
			return changes.End{}, fmt.Errorf("reading the history: %w", err)
		case line.End.End:
			return line.End, nil
		}
		if err := each(line.Change); err != nil {
			return changes.End{}, err
		}
	}
}

// explained says which clusters have a history if the server is not of one of them.
func explained(err error) error {
	const why = "the server does not serve the history of its objects, as clusters of `sampan up` do"
	switch {
	case exit.IsGone(err):
		return errors.New(why)
	case isForbiddenPath(err):
		return fmt.Errorf("%w: %s", err, why)
	}
	return err
}

// isForbiddenPath reports whether a server refused the path: other servers do not say that they do not have it.
func isForbiddenPath(err error) bool {
	return strings.Contains(err.Error(), "path \""+changes.Path+"\"")
}

// A printer prints changes.
type printer struct {
	*history
	out     io.Writer
	head    changes.Header
	printed int
}

// print prints the changes that a query asks for.
func (p *printer) print(ctx context.Context, s *session.Session, query url.Values) error {
	first, begun := p.printed, changes.Created
	end, err := changesOf(ctx, s, query, func(h changes.Header) { p.head = h }, func(c changes.Change) error {
		if p.printed == first {
			begun = c.Operation
		}
		p.printed++
		return p.change(c)
	})
	if err != nil {
		return err
	}
	if end.Earlier == 0 && begun != changes.Created && p.Output == "" && p.since == "" {
		_, _ = fmt.Fprintln(p.Err, "Earlier changes are not kept"+p.begins()+".")
	}
	if end.Earlier > 0 {
		_, _ = fmt.Fprintf(p.Err, "%d earlier changes are not shown: pass --limit or --since.\n", end.Earlier)
	}
	if len(p.head.Omitted) > 0 {
		names := p.head.Omitted
		if more := len(names) - namedTypes; more > 0 {
			names = append(slices.Clone(names[:namedTypes]), fmt.Sprintf("and %d more", more))
		}
		_, _ = fmt.Fprintf(p.Err, "Changes of types that you may not list are not shown: %s.\n", strings.Join(names, ", "))
	}
	return nil
}

// namedTypes is how many types without changes are named.
const namedTypes = 8

// begins says when the history begins, for the end of a sentence.
func (p *printer) begins() string {
	if p.head.Since.IsZero() {
		return fmt.Sprintf(": the history begins at revision %d", p.head.From)
	}
	return ": the history begins at " + p.head.Since.UTC().Format(timeFormat)
}

const timeFormat = "2006-01-02T15:04:05Z"

// change prints one change.
func (p *printer) change(c changes.Change) error {
	var b bytes.Buffer
	if p.Output == "json" {
		text, err := json.Marshal(c)
		if err != nil {
			return err
		}
		b.Write(append(text, '\n'))
	} else {
		p.describe(&b, c)
	}
	_, err := p.out.Write(b.Bytes())
	return err
}

// describe writes a change as lines for people.
func (p *printer) describe(b *bytes.Buffer, c changes.Change) {
	at := "(no time)"
	if !c.Time.IsZero() {
		at = c.Time.UTC().Format(timeFormat)
	}
	name := strings.ToLower(c.Kind)
	if c.Group != "" {
		name += "." + c.Group
	}
	name += "/" + c.Name
	if p.in.AllNamespaces && c.Namespace != "" {
		name = c.Namespace + " " + name
	}
	by := c.User
	if c.Agent != "" {
		by += " (" + c.Agent + ")"
	}
	switch {
	case by == "":
		by = "(unknown)"
	case strings.ContainsFunc(by, unicode.IsControl): // both are the client's choice, and a line break would forge a change
		by = strconv.Quote(by)
	}
	fmt.Fprintf(b, "%s  %d  %s  %s  %s\n", at, c.Revision, name, c.Operation, by)
	writeFields(b, c.Fields, c.More)
	if c.Note != "" {
		fmt.Fprintf(b, "    (fields are not shown: %s)\n", c.Note)
	}
}

// writeFields writes changed fields, one per line.
func writeFields(b *bytes.Buffer, fields []changes.Field, more int) {
	for _, f := range fields {
		switch {
		case f.Before == nil:
			fmt.Fprintf(b, "    + %s: %s\n", f.Path, valueText(f.After))
		case f.After == nil:
			fmt.Fprintf(b, "    - %s: %s\n", f.Path, valueText(f.Before))
		default:
			fmt.Fprintf(b, "    ~ %s: %s -> %s\n", f.Path, valueText(f.Before), valueText(f.After))
		}
	}
	if more > 0 {
		fmt.Fprintf(b, "    … and %d more fields\n", more)
	}
}

// longValue is how many characters of a value are shown.
const longValue = 120

func valueText(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	text := []rune(strings.TrimSuffix(b.String(), "\n"))
	if len(text) > longValue {
		return string(text[:longValue]) + "…"
	}
	return string(text)
}
