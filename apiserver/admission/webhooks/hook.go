package webhooks

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/sampan-io/sampan/apiserver/admission/matching"
	"github.com/sampan-io/sampan/apiserver/webhook"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/admissioncel"
)

// A hook is a webhook of a configuration, compiled. It never changes.
type hook struct {
	*admissionregistrationv1.MutatingWebhook // a validating webhook has the same fields, except its reinvocation policy

	id            string // unique among all webhooks of a plug-in
	configuration string // its name
	matcher       *matching.Matcher
	conditions    func() admissioncel.Conditions // compiled when they are needed first
	client        *client
}

// A client is one webhook.Client, or the reason why there is none.
type client struct {
	*webhook.Client
	config admissionregistrationv1.WebhookClientConfig // of which it was made
	err    error
}

// A configuration is a stored configuration, compiled.
type configuration struct {
	object catalog.Object
	hooks  []*hook
}

// webhooksOf returns the webhooks of a configuration object, which is shared.
func webhooksOf(obj catalog.Object) []*admissionregistrationv1.MutatingWebhook {
	var all []*admissionregistrationv1.MutatingWebhook
	switch obj := obj.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range obj.Webhooks {
			all = append(all, &obj.Webhooks[i])
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range obj.Webhooks {
			w := &obj.Webhooks[i]
			all = append(all, &admissionregistrationv1.MutatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
				NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
				TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
			})
		}
	}
	return all
}

// compile returns the configuration of an object. The clients of the configuration that it replaces, which may be nil, are used
// again where their configuration is the same.
func compile(obj catalog.Object, before *configuration, opts webhook.Options) *configuration {
	c := &configuration{object: obj}
	seen := map[string]int{}
	for _, w := range webhooksOf(obj) {
		h := &hook{
			MutatingWebhook: w,
			// Names were not always unique.
			id:            fmt.Sprintf("%s/%s/%d", obj.GetName(), w.Name, seen[w.Name]),
			configuration: obj.GetName(),
			matcher: matching.Compile(&matching.Constraint{
				Rules: matching.Rules(w.Rules), NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, MatchPolicy: w.MatchPolicy,
			}),
			conditions: sync.OnceValue(func() admissioncel.Conditions {
				return admissioncel.NewCompiler(admissioncel.Stored).Conditions(w.MatchConditions, admissioncel.Declarations{Authorizer: true})
			}),
		}
		seen[w.Name]++
		if h.client = before.client(&w.ClientConfig); h.client == nil {
			h.client = newClient(&w.ClientConfig, opts)
		}
		c.hooks = append(c.hooks, h)
	}
	return c
}

func (c *configuration) client(config *admissionregistrationv1.WebhookClientConfig) *client {
	if c == nil {
		return nil
	}
	for _, h := range c.hooks {
		if reflect.DeepEqual(&h.client.config, config) {
			return h.client
		}
	}
	return nil
}

func newClient(c *admissionregistrationv1.WebhookClientConfig, opts webhook.Options) *client {
	config := webhook.Config{CABundle: c.CABundle}
	if c.URL != nil {
		config.URL = *c.URL
	}
	if s := c.Service; s != nil {
		config.Service = &webhook.Service{Namespace: s.Namespace, Name: s.Name, Path: value(s.Path), Port: value(s.Port)}
	}
	made, err := webhook.New(config, opts)
	return &client{Client: made, config: *c, err: err}
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// configurations are compiled configurations by name.
type configurations map[string]*configuration

// update returns the configurations of the objects, and those clients that they do not use any more.
func (before configurations) update(objects []catalog.Object, opts webhook.Options) (after configurations, unused []*client) {
	after = configurations{}
	used := map[*client]bool{}
	for _, obj := range objects {
		c := before[obj.GetName()]
		if c == nil || c.object != obj && (c.object.GetUID() != obj.GetUID() || c.object.GetResourceVersion() != obj.GetResourceVersion()) {
			c = compile(obj, c, opts)
		}
		after[obj.GetName()] = c
		for _, h := range c.hooks {
			used[h.client] = true
		}
	}
	for _, c := range before {
		for _, h := range c.hooks {
			if !used[h.client] && h.client.Client != nil {
				unused = append(unused, h.client)
			}
		}
	}
	return after, unused
}

// hooks returns all webhooks, in the order of the names of their configurations.
func (all configurations) hooks() (hooks []*hook) {
	sorted := make([]*configuration, 0, len(all))
	for _, c := range all {
		sorted = append(sorted, c)
	}
	slices.SortFunc(sorted, func(a, b *configuration) int { return cmp.Compare(a.object.GetName(), b.object.GetName()) })
	for _, c := range sorted {
		hooks = append(hooks, c.hooks...)
	}
	return hooks
}

// ignores reports whether a failed call counts as if the webhook had allowed the write.
func (h *hook) ignores() bool { return value(h.FailurePolicy) == admissionregistrationv1.Ignore }

// dryRuns reports whether the webhook may be called for a dry run.
func (h *hook) dryRuns() bool {
	switch value(h.SideEffects) {
	case admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun:
		return true
	}
	return false
}

// timeout is that of a call; 0 means that only the request's counts.
func (h *hook) timeout() time.Duration { return time.Duration(value(h.TimeoutSeconds)) * time.Second }
