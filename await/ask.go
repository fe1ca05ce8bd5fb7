package await

import (
	"context"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/follow"
)

// spare is how much longer than the wait the server is asked to wait, so that the deadline is reported by this
// package and not by the server.
const spare = 5 * time.Second

// A reader is a client that can make blocking reads.
type reader interface {
	GetUntil(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, read client.BlockingRead) (client.Reading, error)
}

// A question is a blocking read of one object that replaces the first list. Its answer comes when one of its outcomes is
// true. A server that does not know the parameters answers at once, so an answer can be early, and is judged here.
type question struct {
	reader reader
	target Target
	read   client.BlockingRead
	by     time.Time // a list replaces an answer that is later
}

// ask sends the question and reports the answer with send. It returns the resource version of the object in the answer,
// or "" if a list is needed, and false when send does.
func (q *question) ask(ctx context.Context, send func(follow.Step) bool) (revision string, going bool) {
	timed, cancel := context.WithDeadline(ctx, q.by)
	defer cancel()
	answer, err := q.reader.GetUntil(timed, q.target.Resource, q.target.Namespace, q.target.Name, q.read)
	switch {
	case ctx.Err() != nil:
		return "", false
	case err != nil && !answer.Reached:
		return "", true // the list will return the same error
	case err != nil:
		return "", send(reached{})
	case answer.Object == nil:
		return "", send(deleted{follow.Page{Begins: true, Whole: true}, answer.UID})
	}
	return answer.Object.GetResourceVersion(), send(follow.Page{Objects: []client.Object{answer.Object}, Begins: true, Whole: true})
}

// question returns the blocking read that replaces a list and watch, or nil if its result could differ (A8). Its
// outcomes are true wherever a verdict decides: the object reached the degree, or a pod or Job has ended, which is a
// certain failure. A wait that depends on anything else (parts, events, a grace period), that has no limit or a longer
// one than servers accept, or that is for an object that the caller wrote, is done with a watch.
func (r Request) question(c reader) *question {
	if len(r.Targets) != 1 || r.Once || r.Timeout == 0 || r.Timeout > client.MaxBlocking-spare {
		return nil
	}
	t := r.Targets[0]
	if t.Name == "" || t.Resource.Resource == "" || t.UID != "" || t.Generation != 0 || t.ResourceVersion != "" {
		return nil
	}
	q := &question{
		reader: c, target: t, by: time.Now().Add(r.Timeout),
		read: client.BlockingRead{Limit: r.Timeout.Truncate(time.Second) + spare},
	}
	if r.For == Deleted {
		q.read.Missing = "done"
		return q
	}
	done, ok := r.For.cels(t, true)
	if !ok {
		return nil
	}
	q.read.Until = []string{"done:" + done}
	switch t.Resource {
	case client.Pods.GroupVersionResource:
		q.read.Until = append(q.read.Until, `failed:object.status.phase in ["Succeeded", "Failed"] && !has(object.metadata.deletionTimestamp)`)
	case batchv1.SchemeGroupVersion.WithResource("jobs"):
		q.read.Until = append(q.read.Until, `failed:object.status.conditions.exists(c, c.type in ["Complete", "Failed"] && c.status == "True")`)
	}
	if r.Missing || r.For.has(Created) {
		q.read.Missing = "wait"
	}
	return q
}

// cels returns a CEL expression that is true wherever the degree is reached, and perhaps elsewhere. The caller's
// expression is used only where it is the whole degree (alone), because CEL hides the errors of an operand of && and ||.
func (d Degree) cels(t Target, alone bool) (text string, ok bool) {
	switch {
	case d == Created:
		return "true", true
	case d.path != nil:
		return d.path.CEL()
	case d.cel != nil:
		return d.cel.text, alone
	case d.condition != "":
		return d.conditionCEL(t)
	case d.all == nil && d.any == nil:
		return "", false
	}
	between, texts := " && ", []string(nil)
	if d.any != nil {
		between = " || "
	}
	for _, o := range append(d.part(d.all), d.part(d.any)...) {
		one, ok := o.cels(t, false)
		if !ok {
			return "", false
		}
		texts = append(texts, "("+one+")")
	}
	return strings.Join(texts, between), true
}

// conditionCEL returns the expression of [Degree.cels] for a condition. It returns ok false for a condition that the
// kind never has: that is a [*MisuseError], which the server cannot report.
func (d Degree) conditionCEL(t Target) (text string, ok bool) {
	gvk := t.Resource.GroupVersion().WithKind(t.Kind)
	like := builtin(gvk)
	if like == nil {
		like = &unstructured.Unstructured{Object: map[string]any{}}
	}
	like.GetObjectKind().SetGroupVersionKind(gvk)
	if verdict, err := judgeCondition(d, like, nil); t.Kind == "" || err != nil || verdict.State != Waiting {
		return "", false
	}
	if strings.ContainsFunc(d.condition+d.value, func(r rune) bool { return r > '~' || r < ' ' || r == '"' || r == '\\' }) {
		return "", false
	}
	return `object.?status.?conditions.orValue([]).exists(c, c.?type.orValue("").lowerAscii() == "` + strings.ToLower(d.condition) +
		`" && c.?status.orValue("").lowerAscii() == "` + strings.ToLower(d.value) + `" && ` +
		`(c.?observedGeneration.orValue(0) > 0 ? c.observedGeneration : object.?status.?observedGeneration.orValue(object.metadata.?generation.orValue(0)))` +
		` >= object.metadata.?generation.orValue(0))`, true
}
