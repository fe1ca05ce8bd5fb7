package cluster

import (
	"slices"
	"testing"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/definitions"
	"github.com/sampan-io/sampan/apiserver/rbac"
)

// TestAdmissionIsInUpstreamsOrder compares with the order of AllOrderedPlugins of upstream's kube-apiserver v1.37.
func TestAdmissionIsInUpstreamsOrder(t *testing.T) {
	upstream := []string{
		"NamespaceLifecycle", "LimitRanger", "ServiceAccount", "NodeRestriction", "TaintNodesByCondition", "PodSecurity", "Priority",
		"DefaultTolerationSeconds", "RuntimeClass", "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction",
		"DefaultIngressClass", "PodTopologyLabels", "NodeDeclaredFeatureValidator", "PodResizeValidator", "MutatingAdmissionPolicy",
		"MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota",
	}
	all := admitters{
		authorizer: rbac.New(rbac.Options{}), webhooks: &admissionWebhooks{},
		podSecurity: &admission.PodSecurity{}, addresses: &admission.ServiceAddresses{}, definitions: (&definitions.Follower{}).Await(),
	}.inOrder()
	var ours []string
	known := map[string]bool{}
	for _, p := range all {
		if known[p.Name()] {
			t.Errorf("%s is asked twice", p.Name())
		}
		known[p.Name()] = true
		if slices.Contains(upstream, p.Name()) {
			ours = append(ours, p.Name())
		}
	}
	if !slices.Equal(ours, upstream) {
		t.Errorf("the order is %v, want %v", ours, upstream)
	}
}
