package scheduling

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/cli/show"
	"github.com/sampan-io/sampan/internal/plural"
	"github.com/sampan-io/sampan/internal/terminal"
)

const apiVersion = "scheduler.sampan.dev/v1alpha1"

// An explanation is what `-o json` prints of one pod.
type explanation struct {
	APIVersion    string       `json:"apiVersion"`
	Kind          string       `json:"kind"`
	Namespace     string       `json:"namespace"`
	Name          string       `json:"name"`
	Owner         string       `json:"owner,omitempty"` // the object of a file that it comes of
	SchedulerName string       `json:"schedulerName"`
	Fits          bool         `json:"fits"`
	NodeName      string       `json:"nodeName,omitempty"` // where it would go
	Message       string       `json:"message"`            // of the scheduler's event, if it fits nowhere
	On            *where       `json:"current,omitempty"`  // of a pod that has a node
	Phase         string       `json:"phase,omitempty"`    // of a pod that has ended
	Terminating   bool         `json:"terminating,omitempty"`
	Unattended    bool         `json:"unattended,omitempty"`    // no scheduler of its name has decided about any pod, or about this one for long
	Waiting       *waiting     `json:"waiting,omitempty"`       // what keeps it out of the queue
	RefusedWrites string       `json:"refusedWrites,omitempty"` // why the server refuses writes, so that the pod may not be bound
	Obstacle      string       `json:"obstacle,omitempty"`      // an object that it names and that it waits for, and why
	NotAsked      []string     `json:"notAsked,omitempty"`      // extenders that would have a say
	Nodes         []nodeResult `json:"nodes"`                   // best first
	Changes       []change     `json:"changes"`                 // each would be enough; smallest first
	Preemption    *preemption  `json:"preemption,omitempty"`
}

// where is the node on which a pod is, and what would be said of it now.
type where struct {
	NodeName string `json:"nodeName"`
	Fits     bool   `json:"fits"`
	Message  string `json:"message"`
}

type waiting struct {
	Plugin  string `json:"plugin"`
	Message string `json:"message"`
}

type nodeResult struct {
	Name     string    `json:"name"`
	Fits     bool      `json:"fits"`
	Score    *int64    `json:"score,omitempty"` // the weighted sum
	Scores   []score   `json:"scores,omitempty"`
	Refusals []refusal `json:"refusals,omitempty"` // the first is the one that counts

	effort effort
}

type score struct {
	Plugin string `json:"plugin"`
	Score  int64  `json:"score"`
	Weight int64  `json:"weight"`
}

type refusal struct {
	Plugin  string   `json:"plugin"`
	Final   bool     `json:"final"` // the end of other pods would change nothing
	Reasons []string `json:"reasons"`
	Lacks   []lack   `json:"lacks,omitempty"`
}

type lack struct {
	What  string            `json:"what"`
	Asked resource.Quantity `json:"asked"`
	Free  resource.Quantity `json:"free"`
	Total resource.Quantity `json:"total"`
}

type change struct {
	Nodes []string `json:"nodes"`
	Steps []string `json:"steps"`

	effort effort
}

type preemption struct {
	Helps    bool     `json:"helps"`
	NodeName string   `json:"nodeName,omitempty"`
	Victims  []victim `json:"victims"`
	Message  string   `json:"message,omitempty"` // why not
}

type victim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Priority  int32  `json:"priority"`
}

// explanations are those of several pods.
type explanations struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Items      []explanation `json:"items"`
}

func (v *explainVerb) print(all []explanation) error {
	var data any = explanations{apiVersion, "SchedulingExplanationList", all}
	if len(all) == 1 {
		data = all[0]
	}
	switch v.Output {
	case "json":
		text, err := json.MarshalIndent(data, "", "    ")
		if err == nil {
			_, err = fmt.Fprintf(v.Out, "%s\n", text)
		}
		return err
	case "yaml":
		text, err := yaml.Marshal(data)
		if err == nil {
			_, err = v.Out.Write(text)
		}
		return err
	}
	// Of each owner, the first pod that fits and the first that does not are printed in full.
	type sort struct {
		owner string
		stuck bool
	}
	told := map[sort]bool{}
	for i := range all {
		e := &all[i]
		if _, err := fmt.Fprintln(v.Out, e.sentence()); err != nil {
			return err
		}
		if s := (sort{e.Owner, e.stuck()}); !told[s] {
			told[s] = true
			if err := e.print(v.Out, v.Output == "wide"); err != nil {
				return err
			}
			if i < len(all)-1 {
				if _, err := fmt.Fprintln(v.Out); err != nil {
					return err
				}
			}
		}
	}
	if len(all) > 0 && all[0].RefusedWrites != "" {
		_, err := fmt.Fprintf(v.Out, "\nThe server refuses writes, so pods may not be created or bound: %s\n", terminal.Line(all[0].RefusedWrites))
		return err
	}
	return nil
}

// verdict says what is said of a node: of a refusal the first, which users read in events.
func (n *nodeResult) verdict() string {
	if n.Fits {
		return "fits"
	}
	return n.Refusals[0].String()
}

func (r *refusal) String() string { return r.Plugin + ": " + strings.Join(r.Reasons, ", ") }

// lacks says all lacks of a node in numbers.
func (n *nodeResult) lacks() string {
	var all []string
	for _, r := range n.Refusals {
		for i := range r.Lacks {
			all = append(all, r.Lacks[i].String())
		}
	}
	return strings.Join(all, "; ")
}

// print prints the tables.
func (e *explanation) print(w io.Writer, wide bool) error {
	var b strings.Builder
	b.WriteByte('\n')
	if len(e.Nodes) > 0 {
		if err := e.table(&b, wide); err != nil {
			return err
		}
	}
	e.tellChanges(&b, wide)
	for _, x := range e.NotAsked {
		fmt.Fprintf(&b, "\nThe extender %s takes part in scheduling, but is not called here.\n", x)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (e *explanation) table(w io.Writer, wide bool) error {
	t := show.NewTable(w)
	head := []string{"NODE", "VERDICT", "SCORE"}
	var scores []score // the columns
	if wide {
		for _, n := range e.Nodes {
			if len(n.Scores) > len(scores) {
				scores = n.Scores
			}
		}
		for _, s := range scores {
			head = append(head, strings.ToUpper(s.Plugin)+"×"+strconv.FormatInt(s.Weight, 10))
		}
	}
	t.Row(append(head, "LACKS"))
	for i := range e.Nodes {
		n := &e.Nodes[i]
		verdict, total := n.verdict(), "<none>"
		if wide && !n.Fits {
			var all []string
			for _, r := range n.Refusals {
				all = append(all, r.String())
			}
			verdict = strings.Join(all, "; ")
		}
		if n.Fits {
			total = strconv.FormatInt(*n.Score, 10)
		}
		row := []string{n.Name, verdict, total}
		for _, column := range scores {
			cell := "<none>"
			for _, s := range n.Scores {
				if s.Plugin == column.Plugin {
					cell = strconv.FormatInt(s.Score, 10)
				}
			}
			row = append(row, cell)
		}
		lacks := n.lacks()
		if lacks == "" {
			lacks = "<none>"
		}
		t.Row(append(row, lacks))
	}
	return t.Flush()
}

// few is how many changes, and how many nodes of each, are printed by default.
const few = 5

func (e *explanation) tellChanges(b *strings.Builder, wide bool) {
	if e.Fits || len(e.Nodes) == 0 {
		return
	}
	b.WriteString("\nIt would fit after one of these changes, the smallest first:\n")
	for i, c := range e.Changes {
		if i == few && !wide {
			fmt.Fprintf(b, "  (and with %s: -o wide has all)\n", plural.Count(len(e.Changes)-few, "other change"))
			break
		}
		nodes := c.Nodes
		more := ""
		if len(nodes) > few && !wide {
			nodes, more = nodes[:few], ", …"
		}
		on := "on " + nodes[0]
		if len(c.Nodes) > 1 {
			on = fmt.Sprintf("on any of %d nodes (%s%s)", len(c.Nodes), strings.Join(nodes, ", "), more)
		}
		fmt.Fprintf(b, "  %s: %s\n", on, strings.Join(c.Steps, ", and "))
	}
	switch p := e.Preemption; {
	case p == nil:
	case p.Helps:
		var names []string
		for _, v := range p.Victims {
			names = append(names, fmt.Sprintf("%s/%s (priority %d)", v.Namespace, v.Name, v.Priority))
		}
		fmt.Fprintf(b, "\nPreemption would make room on %s by evicting %s.\n", p.NodeName, strings.Join(names, ", "))
	case p.Message != "":
		fmt.Fprintf(b, "\nPreemption is not helpful: %s\n", strings.TrimPrefix(p.Message, "preemption: "))
	default:
		b.WriteString("\nPreemption is not helpful.\n")
	}
}
