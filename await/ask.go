package await

import (
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sampan-io/sampan/await/follow"
	"github.com/sampan-io/sampan/client"
)

// spare is how much longer than the wait the server is asked to wait, so that the deadline is reported by this
// package and not by the server.
const spare = 5 * time.Second

// question returns the blocking read that replaces a list and watch, or nil if its result could differ (A8). Its
// outcomes are true wherever a verdict decides: the object reached the degree, or a pod or Job has ended, which is a
// certain failure. A wait that depends on anything else (parts, events, a grace period), that has no limit or a longer
// one than servers accept, or that is for an object that the caller wrote, is done with a watch.
func (r Request) question(reader follow.Reader) *follow.Question {
	if len(r.Targets) != 1 || r.Once || r.Timeout == 0 || r.Timeout > client.MaxBlocking-spare {
		return nil
	}
	t := r.Targets[0]
	if t.Name == "" || t.Resource.Resource == "" || t.UID != "" || t.Generation != 0 || t.ResourceVersion != "" {
		return nil
	}
	q := &follow.Question{
		Reader: reader, Name: t.Name, By: time.Now().Add(r.Timeout),
		Read: client.BlockingRead{Limit: r.Timeout.Truncate(time.Second) + spare},
	}
	if r.For == Deleted {
		q.Read.Missing = "done"
		return q
	}
	done, ok := r.For.cels(t, true)
	if !ok {
		return nil
	}
	q.Read.Until = []string{"done:" + done}
	switch t.Resource {
	case client.Pods.GroupVersionResource:
		q.Read.Until = append(q.Read.Until, `failed:object.status.phase in ["Succeeded", "Failed"] && !has(object.metadata.deletionTimestamp)`)
	case batchv1.SchemeGroupVersion.WithResource("jobs"):
		q.Read.Until = append(q.Read.Until, `failed:object.status.conditions.exists(c, c.type in ["Complete", "Failed"] && c.status == "True")`)
	}
	if r.Missing || r.For.has(Created) {
		q.Read.Missing = "wait"
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
