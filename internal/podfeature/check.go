package podfeature

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// An Effect is what becomes of a pod that asks for a feature that the node agent does not have.
type Effect string

const (
	// Ignored fields are stored, and the pod runs as if they were not set.
	Ignored Effect = "ignored"
	// Rejected pods are not run by the node agent, and get the phase Failed: they would never start or become ready, or
	// they ask for isolation that they would not get.
	Rejected Effect = "rejected"
)

// Unsupported is the reason in the status of pods that the node agent rejects, where upstream's kubelet has none.
const Unsupported = "UnsupportedFeature"

// A Finding is one field of a pod specification that the node agent does not support.
type Finding struct {
	Field   string // its path
	Value   any    // nil if it is not one number, word or truth value
	Effect  Effect
	Reason  string // for the status of a rejected pod
	Because string // what holds instead, or what the node agent lacks
	Words   string // for the status of a rejected pod, where upstream's kubelet has words of its own
}

// Warnings returns the sentences for the client that writes an object with these findings. Each names the object: clients send
// dozens at once. Findings about the same field of elements of one list are one sentence, with the path of the first.
func Warnings(kind, name string, found []Finding) (all []string) {
	more := map[string]int{}
	for _, f := range found {
		more[f.pattern()]++
	}
	for _, f := range found {
		at, n := f.pattern(), more[f.pattern()]
		if n == 0 {
			continue // one sentence is enough
		}
		if delete(more, at); n > 1 {
			f.Field = fmt.Sprintf("%s (and %d more)", f.Field, n-1)
		}
		if f.Effect == Ignored {
			all = append(all, NoEffect(kind, name, f.Field, f.Because))
		} else {
			all = append(all, About(kind, name)+f.said("is rejected by Sampan's node agent"))
		}
	}
	return all
}

// pattern is the path of the field without the indices of lists, and what is wrong there.
func (f Finding) pattern() string {
	var b strings.Builder
	for _, part := range strings.Split(f.Field, ".") {
		name, _, _ := strings.Cut(part, "[")
		b.WriteString("." + name)
	}
	return fmt.Sprintf("%s %v %s", b.String(), f.Value, f.Because)
}

// Message returns the sentence for the status of a pod that the node agent rejects.
func (f Finding) Message() string {
	if f.Words != "" {
		return strings.ReplaceAll(f.Words, "VALUE", fmt.Sprintf("%q", f.Value))
	}
	return f.said("is not supported by Sampan's node agent")
}

func (f Finding) said(what string) string {
	if f.Value == nil {
		return fmt.Sprintf("%s: %s: %s", f.Field, what, f.Because)
	}
	return fmt.Sprintf("%s: %v %s: %s", f.Field, f.Value, what, f.Because)
}

// NoEffect says that the field at a path of an object is stored and changes nothing, and what holds instead.
func NoEffect(kind, name, path, instead string) string {
	return fmt.Sprintf("%s%s: has no effect in this version: %s", About(kind, name), path, instead)
}

// About returns the beginning of a warning about an object that is Sampan's own. Warnings of upstream have its words alone.
func About(kind, name string) string { return fmt.Sprintf("%s %q: ", kind, name) }

// Check returns what spec, which is at the path at, asks for and the node agent does not do, in the order of the fields.
func Check(spec *corev1.PodSpec, at *field.Path) []Finding {
	w := walk{base: at}
	apply(&w, podRules, spec)
	for i := range spec.InitContainers {
		w.container("initContainers", i, container{&spec.InitContainers[i], true})
	}
	for i := range spec.Containers {
		w.container("containers", i, container{&spec.Containers[i], false})
	}
	for i := range spec.Volumes {
		w.volume(i, &spec.Volumes[i])
	}
	return w.found
}

// Rejection returns why the node agent rejects a pod; the zero Finding if it does not.
func Rejection(spec *corev1.PodSpec) Finding {
	for _, f := range Check(spec, field.NewPath("spec")) {
		if f.Effect == Rejected {
			return f
		}
	}
	return Finding{}
}

// A rule is about one field of a T.
type rule[T any] struct {
	field   string // below the T
	effect  Effect
	because string
	asked   func(*T) (value any, asked bool)

	// The reason and message of upstream's kubelet, if it rejects such pods too; VALUE stands for the value in quotes.
	// An empty reason means Unsupported.
	reason, words string
}

// A container is one of a pod's init containers or containers.
type container struct {
	*corev1.Container
	init bool
}

// A walk goes through a specification. It keeps the present place as a stack, because most pods have nothing to find and
// then no path is needed.
type walk struct {
	base  *field.Path
	place [1]step
	depth int
	found []Finding
}

// A step is an element of a list.
type step struct {
	list  string
	index int
}

func (w *walk) enter(list string, index int) {
	w.place[w.depth] = step{list, index}
	w.depth++
}

func (w *walk) leave() { w.depth-- }

func (w *walk) path(name string) string {
	var b strings.Builder
	b.WriteString(w.base.String())
	for _, s := range w.place[:w.depth] {
		fmt.Fprintf(&b, ".%s[%d]", s.list, s.index)
	}
	return b.String() + "." + name
}

func (w *walk) container(list string, index int, c container) {
	w.enter(list, index)
	apply(w, containerRules, &c)
	w.leave()
}

func (w *walk) volume(index int, v *corev1.Volume) {
	w.enter("volumes", index)
	apply(w, volumeRules, v)
	w.leave()
}

func apply[T any](w *walk, rules []rule[T], x *T) {
	for i := range rules {
		r := &rules[i]
		value, asked := r.asked(x)
		if !asked {
			continue
		}
		reason := r.reason
		if reason == "" {
			reason = Unsupported
		}
		w.found = append(w.found, Finding{Field: w.path(r.field), Value: value, Effect: r.effect, Reason: reason, Because: r.because, Words: r.words})
	}
}
