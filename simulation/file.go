package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/internal/document"
)

// The apiVersion and kind of a file.
const (
	APIVersion = "simulation.sampan.dev/v1alpha1"
	Kind       = "SimulatedNodes"
)

// file is what is written. Values that need more than their type to be right are read
// as text and checked afterwards, so that their faults have a place.
type file struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Seed       int64      `json:"seed"`
	Nodes      []fileNode `json:"nodes"`
	Pods       []filePod  `json:"pods"`
}

type fileNode struct {
	Name          string                  `json:"name"`
	Count         *int                    `json:"count"`
	Capacity      map[string]scalar       `json:"capacity"`
	Allocatable   map[string]scalar       `json:"allocatable"`
	Labels        map[string]string       `json:"labels"`
	Annotations   map[string]string       `json:"annotations"`
	Taints        []corev1.Taint          `json:"taints"`
	Unschedulable bool                    `json:"unschedulable"`
	Region        string                  `json:"region"`
	Zones         []string                `json:"zones"`
	Images        []corev1.ContainerImage `json:"images"`
}

type filePod struct {
	Selector       *metav1.LabelSelector `json:"selector"`
	Namespaces     []string              `json:"namespaces"`
	Probability    *float64              `json:"probability"`
	StartDelay     scalar                `json:"startDelay"`
	ReadyDelay     scalar                `json:"readyDelay"`
	RunDuration    scalar                `json:"runDuration"`
	ExitCode       *int32                `json:"exitCode"`
	StopDelay      scalar                `json:"stopDelay"`
	ImagePullError string                `json:"imagePullError"`
	NeverReady     bool                  `json:"neverReady"`
	Usage          map[string]scalar     `json:"usage"`
}

// A scalar is the text of a string or a number.
type scalar string

// UnmarshalJSON implements json.Unmarshaler. Other JSON values are kept as they are, and
// the reader of the text refuses them.
func (s *scalar) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*s = scalar(text)
	} else {
		*s = scalar(data)
	}
	return nil
}

// Read reads a file. The total is the number of nodes from --simulated-nodes, 0 for none:
// a group without a count gets the rest of it. At most `most` nodes are allowed.
func Read(path string, total, most int) (*Plan, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("simulated nodes: %w", err)
	}
	return Parse(path, text, total, most)
}

// Parse parses the text of a file. The source is its name in errors.
func Parse(source string, text []byte, total, most int) (*Plan, error) {
	doc, err := document.Parse(source, text)
	if err != nil {
		return nil, err
	}
	var f file
	if err := doc.Decode(&f); err != nil {
		return nil, err
	}
	var c checker
	p := c.plan(&f, total, most)
	if err := doc.Faults(c.faults); err != nil {
		return nil, err
	}
	return p, nil
}

// checker collects faults.
type checker struct{ faults field.ErrorList }

func (c *checker) invalid(at *field.Path, value any, format string, args ...any) {
	c.faults = append(c.faults, field.Invalid(at, value, fmt.Sprintf(format, args...)))
}

func (c *checker) plan(f *file, total, most int) *Plan {
	if f.APIVersion != APIVersion {
		c.invalid(field.NewPath("apiVersion"), f.APIVersion, "want %s", APIVersion)
	}
	if f.Kind != Kind {
		c.invalid(field.NewPath("kind"), f.Kind, "want %s", Kind)
	}
	p := &Plan{seed: f.Seed}
	nodes := field.NewPath("nodes")
	if len(f.Nodes) == 0 {
		c.faults = append(c.faults, field.Required(nodes, "want at least one group of nodes"))
		return p
	}
	c.counts(f.Nodes, nodes, total, most)
	for i := range f.Nodes {
		p.groups = append(p.groups, c.group(&f.Nodes[i], nodes.Index(i)))
	}
	if len(c.faults) == 0 {
		c.names(p, nodes)
	}
	for i := range f.Pods {
		p.rules = append(p.rules, c.rule(&f.Pods[i], field.NewPath("pods").Index(i)))
	}
	return p
}

// counts gives the group without a count what is left.
func (c *checker) counts(groups []fileNode, at *field.Path, total, most int) {
	open, sum := -1, 0
	for i := range groups {
		n := groups[i].Count
		switch {
		case n == nil && open >= 0:
			c.faults = append(c.faults, field.Required(at.Index(i).Child("count"), fmt.Sprintf("group %d has none either", open)))
			return
		case n == nil:
			open = i
		case *n < 0 || *n > most:
			c.invalid(at.Index(i).Child("count"), *n, "want 0 to %d", most)
			return
		default:
			sum += *n
		}
	}
	switch {
	case open >= 0 && total == 0:
		c.faults = append(c.faults, field.Required(at.Index(open).Child("count"), "want a number, or the number of all nodes from --simulated-nodes"))
	case open >= 0 && total < sum:
		c.invalid(at, total, "the groups have %d nodes, more than the %d of --simulated-nodes", sum, total)
	case open >= 0:
		rest := total - sum
		groups[open].Count = &rest
	case total != 0 && total != sum:
		c.invalid(at, total, "the groups have %d nodes and not the %d of --simulated-nodes; leave out a count, and that group has the rest", sum, total)
	case sum == 0:
		c.invalid(at, sum, "want at least one node")
	case sum > most:
		c.invalid(at, sum, "want at most %d nodes", most)
	}
}

// Number is the placeholder for the number of a node in the name of its group.
const Number = "{}"

func (c *checker) group(f *fileNode, at *field.Path) group {
	g := group{
		name: f.Name, labels: f.Labels, annotations: f.Annotations, taints: f.Taints,
		unschedulable: f.Unschedulable, region: f.Region, zones: f.Zones, images: f.Images,
	}
	if f.Count != nil {
		g.count = *f.Count
	}
	switch {
	case f.Name == "":
		c.faults = append(c.faults, field.Required(at.Child("name"), "want a name with {} for the number of the node, such as small-{}"))
	case strings.Count(f.Name, Number) != 1 && g.count != 1:
		c.invalid(at.Child("name"), f.Name, "want one {} in it, for the number of the node")
	default:
		for _, msg := range validation.IsDNS1123Subdomain(g.nodeName(max(g.count-1, 0))) {
			c.invalid(at.Child("name"), f.Name, "%s", msg)
		}
	}
	g.capacity = c.resources(f.Capacity, at.Child("capacity"))
	g.allocatable = c.resources(f.Allocatable, at.Child("allocatable"))
	for name, q := range defaultCapacity() {
		if _, said := g.capacity[name]; !said {
			g.capacity[name] = q
		}
	}
	for name, q := range g.allocatable {
		if has := g.capacity[name]; q.Cmp(has) > 0 {
			c.invalid(at.Child("allocatable").Key(string(name)), q.String(), "more than the capacity, %s", has.String())
		}
	}
	for key, value := range f.Labels {
		for _, msg := range slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)) {
			c.invalid(at.Child("labels").Key(key), value, "%s", msg)
		}
	}
	for key := range f.Annotations {
		for _, msg := range validation.IsQualifiedName(strings.ToLower(key)) {
			c.invalid(at.Child("annotations").Key(key), key, "%s", msg)
		}
	}
	for i, z := range append(slices.Clone(f.Zones), f.Region) {
		where := at.Child("zones").Index(i)
		if i == len(f.Zones) {
			where = at.Child("region")
		}
		for _, msg := range validation.IsValidLabelValue(z) {
			c.invalid(where, z, "%s", msg)
		}
	}
	for i := range f.Taints {
		c.taint(&f.Taints[i], at.Child("taints").Index(i))
	}
	for i := range f.Images {
		if len(f.Images[i].Names) == 0 {
			c.faults = append(c.faults, field.Required(at.Child("images").Index(i).Child("names"), "want the names of the image"))
		}
		if f.Images[i].SizeBytes < 0 {
			c.invalid(at.Child("images").Index(i).Child("sizeBytes"), f.Images[i].SizeBytes, "want a size that is not negative")
		}
	}
	return g
}

func (c *checker) taint(t *corev1.Taint, at *field.Path) {
	for _, msg := range validation.IsQualifiedName(t.Key) {
		c.invalid(at.Child("key"), t.Key, "%s", msg)
	}
	for _, msg := range validation.IsValidLabelValue(t.Value) {
		c.invalid(at.Child("value"), t.Value, "%s", msg)
	}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	if !slices.Contains(effects, t.Effect) {
		c.faults = append(c.faults, field.NotSupported(at.Child("effect"), t.Effect, effects))
	}
}

func (c *checker) resources(texts map[string]scalar, at *field.Path) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, text := range texts {
		where := at.Key(name)
		for _, msg := range validation.IsQualifiedName(name) {
			c.invalid(where, name, "%s", msg)
		}
		q, err := resource.ParseQuantity(string(text))
		switch {
		case err != nil:
			c.invalid(where, string(text), "want a quantity such as 8, 500m or 32Gi")
		case q.Sign() < 0:
			c.invalid(where, string(text), "want a quantity that is not negative")
		case !fractional(name) && q.MilliValue()%1000 != 0:
			c.invalid(where, string(text), "want a whole number")
		default:
			list[corev1.ResourceName(name)] = q
		}
	}
	return list
}

// usage reads what each container of a pod uses.
func (c *checker) usage(texts map[string]scalar, at *field.Path) Usage {
	var u Usage
	for name, text := range texts {
		where := at.Key(name)
		v, err := u.part(corev1.ResourceName(name))
		if err != nil {
			c.invalid(where, name, "%v", err)
			continue
		}
		if err := v.set(string(text)); err != nil {
			c.invalid(where, string(text), "%v", err)
		}
	}
	return u
}

// fractional reports whether there can be a part of one of a resource.
func fractional(name string) bool {
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	default:
		return false
	}
}

// names checks that no two nodes are called the same.
func (c *checker) names(p *Plan, at *field.Path) {
	of := map[string]int{}
	for i := range p.groups {
		for n := range p.groups[i].count {
			name := p.groups[i].nodeName(n)
			if other, taken := of[name]; taken {
				c.invalid(at.Index(i).Child("name"), p.groups[i].name, "node %s is in group %d, too", name, other)
				break
			}
			of[name] = i
		}
	}
}

func (c *checker) rule(f *filePod, at *field.Path) rule {
	r := rule{
		selector: labels.Everything(), namespaces: f.Namespaces, probability: 1, exitCode: 0,
		pullError: f.ImagePullError, neverReady: f.NeverReady,
		start: c.span(f.StartDelay, at.Child("startDelay")),
		ready: c.span(f.ReadyDelay, at.Child("readyDelay")),
		stop:  c.span(f.StopDelay, at.Child("stopDelay")),
		usage: c.usage(f.Usage, at.Child("usage")),
	}
	if f.Selector != nil {
		faults := metavalidation.ValidateLabelSelector(f.Selector, metavalidation.LabelSelectorValidationOptions{}, at.Child("selector"))
		if c.faults = append(c.faults, faults...); len(faults) == 0 {
			s, err := metav1.LabelSelectorAsSelector(f.Selector)
			if err != nil {
				c.invalid(at.Child("selector"), f.Selector.String(), "%v", err)
			}
			r.selector = s
		}
	}
	for i, n := range f.Namespaces {
		for _, msg := range validation.IsDNS1123Label(n) {
			c.invalid(at.Child("namespaces").Index(i), n, "%s", msg)
		}
	}
	if f.Probability != nil {
		if r.probability = *f.Probability; r.probability < 0 || r.probability > 1 || math.IsNaN(r.probability) {
			c.invalid(at.Child("probability"), *f.Probability, "want 0 to 1")
		}
	}
	if f.RunDuration != "" {
		run := c.span(f.RunDuration, at.Child("runDuration"))
		r.run = &run
	}
	if f.ExitCode != nil {
		r.exitCode = *f.ExitCode
		switch {
		case r.exitCode < 0 || r.exitCode > 255:
			c.invalid(at.Child("exitCode"), r.exitCode, "want 0 to 255")
		case r.run == nil:
			c.faults = append(c.faults, field.Required(at.Child("runDuration"), "the exitCode is for containers that end"))
		}
	}
	return r
}

// span reads a duration or a range of durations.
func (c *checker) span(text scalar, at *field.Path) span {
	if text == "" {
		return span{}
	}
	from, to, isRange := strings.Cut(string(text), "..")
	s := span{}
	var err, err2 error
	s.from, err = time.ParseDuration(from)
	s.to = s.from
	if isRange {
		s.to, err2 = time.ParseDuration(to)
	}
	switch err = cmp.Or(err, err2); {
	case err != nil:
		c.invalid(at, string(text), "want a duration such as 500ms or 1m30s, or a range such as 1s..3s")
	case s.from < 0:
		c.invalid(at, string(text), "want a duration that is not negative")
	case s.to < s.from:
		c.invalid(at, string(text), "the range ends before it begins")
	}
	return s
}

func (g *group) nodeName(n int) string {
	return strings.Replace(g.name, Number, strconv.Itoa(n), 1)
}
