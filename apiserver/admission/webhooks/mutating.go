package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/audit"
	"github.com/sampan-io/sampan/apiserver/patch"
	"github.com/sampan-io/sampan/catalog"
)

// Mutating is the plug-in MutatingAdmissionWebhook. It is safe for concurrent use.
type Mutating struct{ *plugin }

// NewMutating returns the plug-in, which has no configurations yet.
func NewMutating(opts Options) (Mutating, error) {
	p, err := newPlugin(opts, true, "admit", "mutatingwebhookconfigurations")
	return Mutating{p}, err
}

// Name implements [admission.Plugin].
func (Mutating) Name() string { return "MutatingAdmissionWebhook" }

// Reinvokes implements [admission.Reinvoker].
func (Mutating) Reinvokes() {}

// invoked is the plug-in's state from the first round to the second.
type invoked struct {
	hooks    []*hook         // the second round has the same, even if the configurations have changed
	eligible map[string]bool // webhooks with the policy IfNeeded that were called after the last change
	again    map[string]bool // webhooks that were called before a change, and are called again
	last     runtime.Object  // a copy of the object after the first round, if there are eligible webhooks
}

// change says that the object changed: the webhooks that were called before are called again.
func (i *invoked) change() {
	for id := range i.eligible {
		i.again[id] = true
	}
	clear(i.eligible)
}

// Admit implements [admission.Mutator].
func (p Mutating) Admit(ctx context.Context, a *admission.Attributes) error {
	if a.Round == 0 {
		p.observe(a)
	}
	state, again := a.Kept[p.Name()].(*invoked)
	if !again {
		if a.Round > 0 {
			return nil // the first round had no webhooks
		}
		state = &invoked{hooks: p.hooks(a), eligible: map[string]bool{}, again: map[string]bool{}}
		if len(state.hooks) == 0 {
			return nil
		}
		if a.Kept == nil {
			a.Kept = map[string]any{}
		}
		a.Kept[p.Name()] = state
	} else if state.last != nil && !equality.Semantic.DeepEqual(state.last, a.New()) {
		state.change() // by other plug-ins
	}
	var r *reviews
	made := func() *reviews {
		if r == nil {
			r = newReviews(a, p.opts.Authorizer, true)
		}
		return r
	}
	for i, h := range state.hooks {
		served, err := p.match(ctx, h, a, made)
		if err != nil {
			return err
		}
		if served == nil || a.Round > 0 && !state.again[h.id] {
			continue
		}
		changed, err := p.invoke(ctx, h, i, served, a, made())
		if changed {
			state.change()
			a.Changed = true
		}
		if value(h.ReinvocationPolicy) == admissionregistrationv1.IfNeededReinvocationPolicy {
			state.eligible[h.id] = true
		}
		if err != nil {
			return err
		}
	}
	state.last = nil
	if obj := a.New(); obj != nil && len(state.eligible) > 0 {
		state.last = obj.DeepCopyObject()
	}
	return nil
}

// invoke calls a webhook and changes the object as its patch says.
func (p Mutating) invoke(ctx context.Context, h *hook, index int, served *catalog.Kind, a *admission.Attributes, r *reviews) (changed bool, err error) {
	place := fmt.Sprintf("round_%d_index_%d", a.Round, index)
	start := time.Now()
	c, err := p.prepare(r, h, served)
	if err == nil {
		var response *admissionv1.AdmissionResponse
		response, err = p.ask(ctx, h, c, a)
		if response != nil {
			warn(a, response.Warnings)
		}
		if err == nil && len(response.Patch) > 0 {
			changed, err = p.patch(ctx, h, place, served, a, r, response)
		}
	}
	open, err := p.conclude(ctx, h, a, err, time.Since(start))
	if a.Audit != nil {
		if open {
			a.Audit.Annotate("failed-open.mutation.webhook.admission.k8s.io/"+place, h.Name)
		}
		annotateJSON(a.Audit, audit.Metadata, "mutation.webhook.admission.k8s.io/"+place, struct {
			Configuration string `json:"configuration"`
			Webhook       string `json:"webhook"`
			Mutated       bool   `json:"mutated"`
		}{h.configuration, h.Name, changed})
	}
	return changed, err
}

func annotateJSON(to *audit.Record, from audit.Level, key string, what any) {
	if b, err := json.Marshal(what); err == nil {
		to.AnnotateFrom(from, key, string(b))
	}
}

// patch puts what a webhook answered into the object of the request. Its error is a *failedCall or an API status error.
func (p Mutating) patch(ctx context.Context, h *hook, place string, served *catalog.Kind, a *admission.Attributes, r *reviews, response *admissionv1.AdmissionResponse) (changed bool, err error) {
	operations, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		return false, &failedCall{h.Name, fmt.Errorf("received undecodable patch in webhook response: %w", err), http.StatusServiceUnavailable}
	}
	if len(operations) == 0 {
		return false, nil
	}
	if a.Object == nil {
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", h.Name))
	}
	if t := value(response.PatchType); t != admissionv1.PatchTypeJSONPatch {
		return false, &failedCall{h.Name, fmt.Errorf("unsupported patch type %q", t), http.StatusBadRequest}
	}
	before, err := r.in(served)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	text, err := patch.ApplyOperations(operations, before.object)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if len(text) > maxObject {
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q makes the object larger than %d bytes", h.Name, maxObject))
	}
	patched, err := decode(ctx, text, a, served)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	changed, err = replace(a, served, patched)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if changed {
		r.changed()
	}
	if a.Audit != nil {
		annotateJSON(a.Audit, audit.Request, "patch.webhook.admission.k8s.io/"+place, struct {
			Configuration string          `json:"configuration"`
			Webhook       string          `json:"webhook"`
			Patch         json.RawMessage `json:"patch,omitempty"`
			PatchType     string          `json:"patchType,omitempty"`
		}{h.configuration, h.Name, response.Patch, string(admissionv1.PatchTypeJSONPatch)})
	}
	return changed, nil
}

// maxObject is the largest object that a patch may make: that of a request's body.
const maxObject = 3 << 20

// replace makes the object of the request what patched is, in a version of its resource, and reports whether that changed it. The Go
// object stays the same one: the API server holds it as well.
func replace(a *admission.Attributes, served *catalog.Kind, patched runtime.Object) (changed bool, err error) {
	obj, ok := patched.(catalog.Object)
	if !ok {
		return false, fmt.Errorf("a %T has no metadata", patched)
	}
	own := obj.GetObjectKind().GroupVersionKind() == served.GroupVersionKind
	if own {
		if served.Coerce != nil {
			if _, err := served.Coerce(obj, catalog.Coercion{}); err != nil {
				return false, err
			}
		}
		if obj, err = served.Accept(obj); err != nil {
			return false, err
		}
	}
	keep(a, obj)
	if own && a.Kind.Default != nil {
		a.Kind.Default(obj)
	}
	if reflect.TypeOf(obj) != reflect.TypeOf(a.Object) {
		return false, fmt.Errorf("the patched object is a %T, not a %T", obj, a.Object)
	}
	if equality.Semantic.DeepEqual(a.Object, obj) {
		return false, nil
	}
	reflect.ValueOf(a.Object).Elem().Set(reflect.ValueOf(obj).Elem())
	return true, nil
}

// keep gives a patched object the metadata that webhooks do not see or must not break.
func keep(a *admission.Attributes, obj catalog.Object) {
	if a.Operation == admission.Create && a.Subresource == "" {
		// The server's own fields: the webhook did not see them.
		obj.SetUID(a.Object.GetUID())
		obj.SetCreationTimestamp(a.Object.GetCreationTimestamp())
		obj.SetGeneration(a.Object.GetGeneration())
		if a.Generated && obj.GetName() == "" && obj.GetGenerateName() != "" {
			obj.SetName(a.Object.GetName())
		}
	}
	fields := obj.GetManagedFields()
	if equality.Semantic.DeepEqual(fields, a.Object.GetManagedFields()) {
		return
	}
	if err := managedfields.ValidateManagedFields(fields); err != nil {
		obj.SetManagedFields(a.Object.GetManagedFields())
		a.Warnings = append(a.Warnings, fmt.Sprintf(".metadata.managedFields was in an invalid state after admission; "+
			"this could be caused by an outdated mutating admission controller; please fix your requests: %v", err))
	}
}
