package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/declared"
)

const (
	defaultTimeout = int32(10)  // seconds of a call
	defaultPort    = int32(443) // of a service reference
)

// webhooks returns the kinds of webhook configurations.
func webhooks() []*catalog.Kind {
	type mutating = admissionregistrationv1.MutatingWebhookConfiguration
	type validating = admissionregistrationv1.ValidatingWebhookConfiguration
	number := func(count func(obj catalog.Object) int64) []catalog.Column {
		return []catalog.Column{
			catalog.Number("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration", count),
			catalog.Age(),
		}
	}
	return []*catalog.Kind{{
		GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"),
		Resource:         "mutatingwebhookconfigurations",
		Singular:         "mutatingwebhookconfiguration",
		Categories:       []string{"api-extensions"},
		New:              func() catalog.Object { return &mutating{} },
		NewList:          func() runtime.Object { return &admissionregistrationv1.MutatingWebhookConfigurationList{} },
		Conditional:      true,
		Generation:       true,
		Default: catalog.Default(func(c *mutating) {
			for i := range c.Webhooks {
				w := &c.Webhooks[i]
				defaultWebhook(&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, &w.ClientConfig, w.Rules)
				if w.ReinvocationPolicy == nil {
					w.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
				}
			}
		}),
		Validate: declared.With(catalog.Validate(func(c, old *mutating) field.ErrorList {
			var before []admissionregistrationv1.MutatingWebhook
			if old != nil {
				before = old.Webhooks
			}
			return validateWebhooks(c.Webhooks, before, old != nil)
		}), ""),
		Warn: func(obj, _ catalog.Object) []string { return warnWebhooks(obj.GetName(), obj.(*mutating).Webhooks) },
		Columns: number(func(obj catalog.Object) int64 {
			return int64(len(obj.(*mutating).Webhooks))
		}),
	}, {
		GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"),
		Resource:         "validatingwebhookconfigurations",
		Singular:         "validatingwebhookconfiguration",
		Categories:       []string{"api-extensions"},
		New:              func() catalog.Object { return &validating{} },
		NewList:          func() runtime.Object { return &admissionregistrationv1.ValidatingWebhookConfigurationList{} },
		Conditional:      true,
		Generation:       true,
		Default: catalog.Default(func(c *validating) {
			for i := range c.Webhooks {
				w := &c.Webhooks[i]
				defaultWebhook(&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, &w.ClientConfig, w.Rules)
			}
		}),
		Validate: declared.With(catalog.Validate(func(c, old *validating) field.ErrorList {
			var before []admissionregistrationv1.MutatingWebhook
			if old != nil {
				before = alike(old.Webhooks)
			}
			return validateWebhooks(alike(c.Webhooks), before, old != nil)
		}), ""),
		Warn: func(obj, _ catalog.Object) []string {
			return warnWebhooks(obj.GetName(), alike(obj.(*validating).Webhooks))
		},
		Columns: number(func(obj catalog.Object) int64 {
			return int64(len(obj.(*validating).Webhooks))
		}),
	}}
}

func defaultWebhook(failure **admissionregistrationv1.FailurePolicyType, match **admissionregistrationv1.MatchPolicyType,
	namespaces, objects **metav1.LabelSelector, timeout **int32, client *admissionregistrationv1.WebhookClientConfig, rules []admissionregistrationv1.RuleWithOperations,
) {
	orFail(failure)
	if *match == nil {
		*match = new(admissionregistrationv1.Equivalent)
	}
	for _, selector := range []**metav1.LabelSelector{namespaces, objects} {
		if *selector == nil {
			*selector = &metav1.LabelSelector{}
		}
	}
	if *timeout == nil {
		*timeout = new(defaultTimeout)
	}
	if s := client.Service; s != nil && s.Port == nil {
		s.Port = new(defaultPort)
	}
	for i := range rules {
		if rules[i].Scope == nil {
			rules[i].Scope = new(admissionregistrationv1.AllScopes)
		}
	}
}

// alike returns validating webhooks as mutating ones, which have the same fields and a reinvocation policy.
func alike(all []admissionregistrationv1.ValidatingWebhook) []admissionregistrationv1.MutatingWebhook {
	out := make([]admissionregistrationv1.MutatingWebhook, len(all))
	for i := range all {
		w := &all[i]
		out[i] = admissionregistrationv1.MutatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
			NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
			TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
		}
	}
	return out
}
