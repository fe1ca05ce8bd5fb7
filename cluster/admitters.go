package cluster

import (
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/admission/policies"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
)

// admitters are the dependencies of the plug-ins of admission.
type admitters struct {
	objects     admission.Reader
	catalog     *catalog.Catalog
	authorizer  *rbac.Authorizer
	roles       *rbac.Policy
	policies    policies.Options
	webhooks    *admissionWebhooks
	podSecurity *admission.PodSecurity
	addresses   *admission.ServiceAddresses
	definitions admission.Plugin // makes the writers of definitions wait for their kinds
}

// inOrder returns all plug-ins in the order in which they see a request: upstream's, AllOrderedPlugins of
// k8s.io/kubernetes/pkg/kubeapiserver/options, as a later plug-in sees the changes of an earlier one. What upstream's
// registries check outside of admission stands where it does: what they set before validation before addresses, what they
// refuse before the policies, so that no other is asked about a request that is refused anyway.
func (a admitters) inOrder() []admission.Plugin {
	return []admission.Plugin{
		admission.NewNamespaceLifecycle(a.objects),
		admission.NewLimitRanger(a.objects),
		admission.NewServiceAccount(a.objects),
		admission.NewNodeRestriction(a.objects, a.authorizer),
		admission.TaintNodesByCondition{},
		a.podSecurity,
		admission.NewPriority(a.objects),
		admission.DefaultTolerationSeconds{},
		admission.NewStorage(a.objects),
		admission.NewRuntimeClass(a.objects),
		admission.NewCertificateApproval(a.authorizer.MayUseSigner),
		admission.NewCertificateSigning(a.authorizer.MayUseSigner),
		admission.CertificateSubjectRestriction{},
		admission.NewCertificateRequestLimit(a.objects),
		admission.NewDeviceAccess(a.objects, a.authorizer),
		admission.NewDefaultIngressClass(a.objects),
		admission.NewPodTopologyLabels(a.objects),
		admission.NewNodeDeclaredFeatureValidator(a.objects),
		admission.NewPodResizeValidator(a.objects),
		policies.NewMutating(a.policies),
		a.webhooks.mutating,
		admission.CertificateRequester{},
		a.addresses,
		admission.NewRoleEscalation(a.roles, a.authorizer),
		policies.NewParamAccess(a.catalog, a.objects, a.authorizer),
		admission.NewDeviceAdminAccess(a.objects),
		policies.NewValidating(a.policies),
		a.webhooks.validating,
		admission.NewResourceQuota(a.objects),
		a.definitions,
	}
}
