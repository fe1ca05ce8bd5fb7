package manifest

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/client"
)

func quotaForm() Form {
	var hard, scopes string
	return Form{
		Use: "quota NAME [--hard=RESOURCE=AMOUNT,…] [--scopes=SCOPE,…]", Aliases: []string{"resourcequota"}, Short: "Create a ResourceQuota",
		Mapping: resource.Mapping{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("resourcequotas"), Kind: "ResourceQuota", Namespaced: true},
		Failure: "failed to create quota",
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&hard, "hard", "", "comma-separated RESOURCE=AMOUNT pairs: the limits of the namespace")
			f.StringVar(&scopes, "scopes", "", "comma-separated scopes: only objects that match all of them are counted")
		},
		Object: func(name string, _ []string) (runtime.Object, error) {
			q := &corev1.ResourceQuota{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"}, ObjectMeta: meta(name)}
			if hard != "" {
				q.Spec.Hard = corev1.ResourceList{}
				for part := range strings.SplitSeq(hard, ",") {
					words := strings.Split(part, "=")
					if len(words) != 2 {
						return nil, fmt.Errorf("Invalid argument syntax %v, expected <resource>=<value>", part) //nolint:staticcheck // kubectl's words
					}
					amount, err := quantity.ParseQuantity(words[1])
					if err != nil {
						return nil, err
					}
					q.Spec.Hard[corev1.ResourceName(words[0])] = amount
				}
			}
			if scopes != "" {
				for scope := range strings.SplitSeq(scopes, ",") {
					if scope == "" {
						return nil, errors.New(`invalid resource quota scope ""`)
					}
					q.Spec.Scopes = append(q.Spec.Scopes, corev1.ResourceQuotaScope(scope))
				}
			}
			return q, nil
		},
	}
}

// podNumber is a number or a percentage of pods.
var podNumber = regexp.MustCompile(`^[0-9]+%?$`)

func disruptionBudgetForm() Form {
	var selector, available, unavailable string
	return Form{
		Use: "poddisruptionbudget NAME --selector=SELECTOR --min-available=N | --max-unavailable=N", Aliases: []string{"pdb"},
		Short: "Create a PodDisruptionBudget", Mapping: resource.MappingOf(client.PodDisruptionBudgets), Failure: "failed to create poddisruptionbudgets",
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&selector, "selector", "", "label selector of the pods")
			f.StringVar(&available, "min-available", "", "number or percentage of pods that must stay available")
			f.StringVar(&unavailable, "max-unavailable", "", "number or percentage of pods that may be unavailable")
		},
		Object: func(name string, _ []string) (runtime.Object, error) {
			switch {
			case selector == "":
				return nil, errors.New("a selector must be specified")
			case available == "" && unavailable == "":
				return nil, errors.New("one of min-available or max-unavailable must be specified")
			case available != "" && unavailable != "":
				return nil, errors.New("min-available and max-unavailable cannot be both specified")
			case available != "" && !podNumber.MatchString(available):
				return nil, errors.New("invalid format specified for min-available")
			case unavailable != "" && !podNumber.MatchString(unavailable):
				return nil, errors.New("invalid format specified for max-unavailable")
			}
			b := &policyv1.PodDisruptionBudget{
				TypeMeta: metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "PodDisruptionBudget"}, ObjectMeta: meta(name),
			}
			var err error
			if b.Spec.Selector, err = metav1.ParseToLabelSelector(selector); err != nil {
				return nil, err
			}
			if available != "" {
				b.Spec.MinAvailable = new(intstr.Parse(available))
			} else {
				b.Spec.MaxUnavailable = new(intstr.Parse(unavailable))
			}
			return b, nil
		},
	}
}

func priorityClassForm() Form {
	c := &schedulingv1.PriorityClass{TypeMeta: metav1.TypeMeta{APIVersion: schedulingv1.SchemeGroupVersion.String(), Kind: "PriorityClass"}}
	var policy string
	return Form{
		Use: "priorityclass NAME --value=VALUE", Aliases: []string{"pc"}, Short: "Create a PriorityClass",
		Mapping: resource.MappingOf(client.PriorityClasses), Failure: "failed to create priorityclass",
		Flags: func(f *pflag.FlagSet) {
			f.Int32Var(&c.Value, "value", 0, "priority of the pods of this class; higher values are scheduled first")
			f.BoolVar(&c.GlobalDefault, "global-default", false, "use this class for pods that name none")
			f.StringVar(&c.Description, "description", "", "when to use this priority class")
			f.StringVar(&policy, "preemption-policy", string(corev1.PreemptLowerPriority), "PreemptLowerPriority, or Never")
		},
		Object: func(name string, _ []string) (runtime.Object, error) {
			c.Name, c.PreemptionPolicy = name, new(corev1.PreemptionPolicy(policy))
			return c, nil
		},
	}
}

func cronJobForm() Form {
	var image, schedule, restart string
	return Form{
		Use: "cronjob NAME --image=IMAGE --schedule=SCHEDULE [-- COMMAND [ARGUMENT…]]", Aliases: []string{"cj"}, Short: "Create a CronJob", Command: true,
		Mapping: resource.Mapping{GroupVersionResource: batchv1.SchemeGroupVersion.WithResource("cronjobs"), Kind: "CronJob", Namespaced: true},
		Failure: "failed to create cronjob", Required: []string{"image", "schedule"},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&image, "image", "", "image of the container (required)")
			f.StringVar(&schedule, "schedule", "", "schedule in cron format (required)")
			f.StringVar(&restart, "restart", "", "OnFailure (the default), or Never")
		},
		Object: func(name string, command []string) (runtime.Object, error) {
			if restart == "" {
				restart = string(corev1.RestartPolicyOnFailure)
			}
			return &batchv1.CronJob{
				TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "CronJob"}, ObjectMeta: meta(name),
				Spec: batchv1.CronJobSpec{
					Schedule: schedule,
					JobTemplate: batchv1.JobTemplateSpec{
						ObjectMeta: meta(name),
						Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
							Containers:    []corev1.Container{{Name: name, Image: image, Command: command}},
							RestartPolicy: corev1.RestartPolicy(restart),
						}}},
					},
				},
			}, nil
		},
	}
}
