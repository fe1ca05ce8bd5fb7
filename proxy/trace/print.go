package trace

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// endpointsShown is the number of endpoints of a path that are shown without wide.
const endpointsShown = 10

// Print writes a trace: its message, and a tree for each path. With wide it includes all endpoints.
func (t *Trace) Print(out io.Writer, wide bool) error {
	var b strings.Builder
	b.WriteString(t.Message + "\n")
	for _, n := range t.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for i := range t.Paths {
		b.WriteByte('\n')
		t.Paths[i].print(&b, t, wide)
	}
	if len(t.AlsoAt) > 0 {
		const shown = 6
		also := t.AlsoAt
		more := ""
		if n := len(also) - shown; n > 0 && !wide {
			also, more = also[:shown], fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(&b, "\nalso at %s%s\n", strings.Join(also, ", "), more)
	}
	for _, h := range t.Hints {
		fmt.Fprintf(&b, "\nhint: %s\n", h)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (p *PathTrace) print(b *strings.Builder, t *Trace, wide bool) {
	title := p.title()
	if p.Answer != nil {
		title += "  " + p.Answer.words()
	}
	b.WriteString(title + "\n")
	for _, d := range p.Differs {
		fmt.Fprintf(b, "├─ differs    %s\n", d)
	}
	fmt.Fprintf(b, "├─ client     %s\n", t.Client.describe())
	if p.Kind == Headless {
		b.WriteString("├─ rule       none: the Service is headless, its names lead to its endpoints directly\n")
	} else {
		fmt.Fprintf(b, "├─ rule       %s, port %s of %s/%s, in %s mode, on node %s\n", p.Kind.words(), p.Port, t.Namespace, t.Name, p.Mode, t.Node)
	}
	if p.Dropped != "" {
		fmt.Fprintf(b, "├─ dropped    %s\n", p.Dropped)
	}
	if p.Policy != "" {
		fmt.Fprintf(b, "├─ policy     %s\n", p.Policy)
	}
	if a := p.Affinity; a != nil {
		s := "bound to no endpoint now"
		if a.Bound != "" {
			s = fmt.Sprintf("bound to %s for %s more", a.Bound, time.Duration(a.Left)*time.Second)
		}
		fmt.Fprintf(b, "├─ affinity   of client addresses, for %s; this one is %s\n", time.Duration(a.Seconds)*time.Second, s)
	}
	if p.SeenAs != "" && p.chosen() > 0 {
		fmt.Fprintf(b, "├─ source     the server sees %s\n", p.SeenAs)
	}
	p.printEndpoints(b, len(t.Paths) > 1, wide)
}

// printEndpoints prints the endpoints; with cause also why there is none, if the message does not
// have it.
func (p *PathTrace) printEndpoints(b *strings.Builder, cause, wide bool) {
	if len(p.Endpoints) == 0 {
		b.WriteString("└─ endpoints  none")
		if cause && p.Cause != "" {
			b.WriteString(": " + p.Cause)
		}
		b.WriteByte('\n')
		return
	}
	tried, answered := 0, 0
	for i := range p.Endpoints {
		if a := p.Endpoints[i].Answer; a != nil {
			tried++
			if a.OK() {
				answered++
			}
		}
	}
	s := fmt.Sprintf("%d of %d may be chosen", p.chosen(), len(p.Endpoints))
	if tried > 0 {
		s += fmt.Sprintf(", %d of %d answer", answered, tried)
	}
	fmt.Fprintf(b, "└─ endpoints  %s\n", s)
	es, more := p.Endpoints, 0
	if len(es) > endpointsShown && !wide {
		es, more = es[:endpointsShown], len(es)-endpointsShown
	}
	width, second := 0, 0
	for i := range es {
		width, second = max(width, utf8.RuneCountInString(es[i].Address)), max(second, utf8.RuneCountInString(es[i].where()))
	}
	for i := range es {
		branch := "├─"
		if i == len(es)-1 && more == 0 {
			branch = "└─"
		}
		where := ""
		if second > 0 {
			where = fmt.Sprintf("%-*s  ", second, es[i].where())
		}
		fmt.Fprintf(b, "   %s %-*s  %s%s\n", branch, width, es[i].Address, where, es[i].state())
	}
	if more > 0 {
		fmt.Fprintf(b, "   └─ and %d more: -o wide has all\n", more)
	}
}

func (e *EndpointTrace) where() string {
	s := e.Pod
	if e.Node != "" {
		s = strings.TrimSpace(s + " on " + e.Node)
	}
	return s
}

func (e *EndpointTrace) state() string {
	s := ""
	switch {
	case !e.Candidate:
		s = "not chosen: " + e.Why
	case e.Answer == nil:
		s = "not tried"
		if e.Why != "" {
			s += "; " + e.Why
		}
	case e.Answer.OK():
		s = e.Answer.words()
		if e.Why != "" {
			s += "; " + e.Why
		}
	default:
		s = "does not answer: " + e.Why
	}
	if e.Suspect {
		s += "; the forwarder avoids it, because it did not answer lately"
	}
	return s
}

func (a *Answer) words() string {
	switch a.Result {
	case Answered:
		return "answers in " + time.Duration(a.Seconds*float64(time.Second)).Round(10*time.Microsecond).String()
	case Silent:
		return "does not refuse, which is all that UDP says"
	case Refused, NoRoute, TimedOut, Closed, Failed:
	}
	return "does not answer: " + plain(a)
}

func (c *Client) describe() string {
	s := c.String()
	if c.Pod != "" {
		s += " on node " + c.Node
		if c.Host {
			s += ", in the network of its node"
		}
	}
	var as []string
	for _, a := range c.Addresses {
		as = append(as, a.String())
	}
	if len(as) > 0 {
		s += " (" + strings.Join(as, ", ") + ")"
	}
	return s
}
