package flowcontrol

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Groups and users that every cluster has.
const (
	administrators  = "system:masters"
	authenticated   = "system:authenticated"
	unauthenticated = "system:unauthenticated"
	nodes           = "system:nodes"
	serviceAccounts = "system:serviceaccounts"
	controllers     = "system:kube-controller-manager"
	scheduler       = "system:kube-scheduler"
)

// catchAllShares is how many shares the level of the requests has that no other schema matches.
const catchAllShares = int32(5)

// level returns a level that has no status yet.
func level(name string, spec flowcontrolv1.PriorityLevelConfigurationSpec) *flowcontrolv1.PriorityLevelConfiguration {
	return &flowcontrolv1.PriorityLevelConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: flowcontrolv1.SchemeGroupVersion.String(), Kind: "PriorityLevelConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}},
		Spec:       spec,
	}
}

// MandatoryLevels returns the levels that every cluster has. They are the caller's.
func MandatoryLevels() []*flowcontrolv1.PriorityLevelConfiguration {
	return []*flowcontrolv1.PriorityLevelConfiguration{
		level(flowcontrolv1.PriorityLevelConfigurationNameExempt, flowcontrolv1.PriorityLevelConfigurationSpec{
			Type:   flowcontrolv1.PriorityLevelEnablementExempt,
			Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: new(int32(0)), LendablePercent: new(int32(0))},
		}),
		level(flowcontrolv1.PriorityLevelConfigurationNameCatchAll, flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: new(catchAllShares), LendablePercent: new(int32(0)),
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		}),
	}
}

// SuggestedLevels returns the other levels that a cluster has until its administrator changes them. They are the
// caller's.
func SuggestedLevels() []*flowcontrolv1.PriorityLevelConfiguration {
	queued := func(name string, shares, lendable, queues, hand int32) *flowcontrolv1.PriorityLevelConfiguration {
		return level(name, flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: &shares, LendablePercent: &lendable,
				LimitResponse: flowcontrolv1.LimitResponse{
					Type:    flowcontrolv1.LimitResponseTypeQueue,
					Queuing: &flowcontrolv1.QueuingConfiguration{Queues: queues, HandSize: hand, QueueLengthLimit: defaultQueueLength},
				},
			},
		})
	}
	return []*flowcontrolv1.PriorityLevelConfiguration{
		queued("system", 30, 33, 64, 6),
		queued("node-high", 40, 25, 64, 6),
		queued("leader-election", 10, 0, 16, 4),
		queued("workload-high", 40, 50, 128, 6),
		queued("workload-low", 100, 90, 128, 6),
		queued("global-default", 20, 50, 128, 6),
	}
}

// schema returns a schema of requests. A method "" makes all of them one flow.
func schema(name, level string, precedence int32, method flowcontrolv1.FlowDistinguisherMethodType, rule flowcontrolv1.PolicyRulesWithSubjects) *flowcontrolv1.FlowSchema {
	s := &flowcontrolv1.FlowSchema{
		TypeMeta:   metav1.TypeMeta{APIVersion: flowcontrolv1.SchemeGroupVersion.String(), Kind: "FlowSchema"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
			MatchingPrecedence:         precedence,
			Rules:                      []flowcontrolv1.PolicyRulesWithSubjects{rule},
		},
	}
	if method != "" {
		s.Spec.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{Type: method}
	}
	return s
}

// everythingOf matches all requests of subjects.
func everythingOf(subjects []flowcontrolv1.Subject) flowcontrolv1.PolicyRulesWithSubjects {
	all := []string{flowcontrolv1.ResourceAll}
	return flowcontrolv1.PolicyRulesWithSubjects{
		Subjects:         subjects,
		ResourceRules:    []flowcontrolv1.ResourcePolicyRule{resources(all, all, all, true)},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
	}
}

func resources(verbs, groups, names []string, clusterScope bool) flowcontrolv1.ResourcePolicyRule {
	return flowcontrolv1.ResourcePolicyRule{Verbs: verbs, APIGroups: groups, Resources: names, ClusterScope: clusterScope, Namespaces: []string{flowcontrolv1.NamespaceEvery}}
}

func groups(names ...string) (subjects []flowcontrolv1.Subject) {
	for _, n := range names {
		subjects = append(subjects, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: n}})
	}
	return subjects
}

func users(names ...string) (subjects []flowcontrolv1.Subject) {
	for _, n := range names {
		subjects = append(subjects, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: n}})
	}
	return subjects
}

// systemAccounts are the service accounts of kube-system.
func systemAccounts() flowcontrolv1.Subject {
	return flowcontrolv1.Subject{
		Kind:           flowcontrolv1.SubjectKindServiceAccount,
		ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: metav1.NamespaceSystem, Name: flowcontrolv1.NameAll},
	}
}

// MandatorySchemas returns the schemas that every cluster has: requests of administrators are never
// limited, and what no other schema matches has a level of its own. They are the caller's.
func MandatorySchemas() []*flowcontrolv1.FlowSchema {
	return []*flowcontrolv1.FlowSchema{
		schema(flowcontrolv1.FlowSchemaNameExempt, flowcontrolv1.PriorityLevelConfigurationNameExempt, 1, "", everythingOf(groups(administrators))),
		schema(flowcontrolv1.FlowSchemaNameCatchAll, flowcontrolv1.PriorityLevelConfigurationNameCatchAll, flowcontrolv1.FlowSchemaMaxMatchingPrecedence,
			flowcontrolv1.FlowDistinguisherMethodByUserType, everythingOf(groups(unauthenticated, authenticated))),
	}
}

// SuggestedSchemas returns the other schemas that a cluster has until its administrator changes them. They are the
// caller's.
func SuggestedSchemas() []*flowcontrolv1.FlowSchema {
	const byUser, byNamespace = flowcontrolv1.FlowDistinguisherMethodByUserType, flowcontrolv1.FlowDistinguisherMethodByNamespaceType
	all := []string{flowcontrolv1.VerbAll}
	leases, core := []string{coordinationv1.GroupName}, []string{corev1.GroupName}
	return []*flowcontrolv1.FlowSchema{
		schema("system-nodes", "system", 500, byUser, everythingOf(groups(nodes))),
		schema("system-node-high", "node-high", 400, byUser, flowcontrolv1.PolicyRulesWithSubjects{
			Subjects: groups(nodes),
			ResourceRules: []flowcontrolv1.ResourcePolicyRule{
				resources(all, core, []string{"nodes", "nodes/status"}, true),
				resources(all, leases, []string{"leases"}, false),
			},
		}),
		schema("probes", flowcontrolv1.PriorityLevelConfigurationNameExempt, 2, "", flowcontrolv1.PolicyRulesWithSubjects{
			Subjects:         groups(unauthenticated, authenticated),
			NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz", "/readyz", "/livez"}}},
		}),
		schema("system-leader-election", "leader-election", 100, byUser, flowcontrolv1.PolicyRulesWithSubjects{
			Subjects:      append(users(controllers, scheduler), systemAccounts()),
			ResourceRules: []flowcontrolv1.ResourcePolicyRule{resources([]string{"get", "create", "update"}, leases, []string{"leases"}, false)},
		}),
		schema("kube-controller-manager", "workload-high", 800, byNamespace, everythingOf(users(controllers))),
		schema("kube-scheduler", "workload-high", 800, byNamespace, everythingOf(users(scheduler))),
		schema("kube-system-service-accounts", "workload-high", 900, byNamespace, everythingOf([]flowcontrolv1.Subject{systemAccounts()})),
		schema("service-accounts", "workload-low", 9000, byUser, everythingOf(groups(serviceAccounts))),
		schema("global-default", "global-default", 9900, byUser, everythingOf(groups(unauthenticated, authenticated))),
	}
}
