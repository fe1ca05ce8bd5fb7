// Package webhooks has the admission plug-ins MutatingAdmissionWebhook and ValidatingAdmissionWebhook: they ask the webhooks of
// the stored MutatingWebhookConfigurations and ValidatingWebhookConfigurations about the writes that their rules match.
//
// A plug-in has a compiled form of the configurations, which its method Refresh replaces: a write of a configuration has an effect before it is answered. A request that no
// webhook matches costs a comparison with each rule, and no JSON is made for it.
//
// Mutating webhooks are called one after the other, ordered by the names of their configurations. Each sees what the
// earlier ones changed, in the version that its rule names; its patch is put into the object of the request at once. If one
// changed the object, the chain asks all mutators a second time ([admission.Attributes.Changed]), where only the webhooks with
// the reinvocation policy IfNeeded are called that had been called before the change. There is no third time, so cycles end.
// Validating webhooks are called at the same time; the first refusal, in the order of the webhooks, is the answer.
package webhooks
