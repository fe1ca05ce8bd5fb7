package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JobFlags are the flags that describe a Job. The zero value has none set.
type JobFlags struct {
	image, pullPolicy string
	env               []string
	labels            string
	account           string
	retries           int32
}

// Add adds the flags.
func (j *JobFlags) Add(f *pflag.FlagSet) {
	f.StringVar(&j.image, "image", "", "image of the container")
	f.StringVar(&j.pullPolicy, "image-pull-policy", "", "image pull policy: Always, IfNotPresent or Never (default: the server's)")
	f.StringArrayVar(&j.env, "env", nil, "environment variable of the container, as NAME=VALUE; may be repeated")
	f.StringVarP(&j.labels, "labels", "l", "", "labels of the Job and its pods, separated by commas")
	f.StringVar(&j.account, "service-account", "", "service account of the pods")
	f.Int32Var(&j.retries, "retries", 0, "number of retries after a failure")
}

// Given reports whether any of the flags was given.
func (j *JobFlags) Given(f *pflag.FlagSet) bool {
	return slices.ContainsFunc([]string{"image", "image-pull-policy", "env", "labels", "service-account", "retries"}, f.Changed)
}

// Object makes the Job. An error is the fault of the command line.
func (j *JobFlags) Object(name string, command []string) (*batchv1.Job, error) {
	if err := CheckImage(j.image); err != nil {
		return nil, err
	}
	if j.retries < 0 {
		return nil, fmt.Errorf("--retries=%d: want 0 or more", j.retries)
	}
	c := corev1.Container{Name: name, Image: j.image, Command: command}
	var err error
	if c.Env, err = environment(j.env); err != nil {
		return nil, err
	}
	if c.ImagePullPolicy, err = pullPolicy(j.pullPolicy); err != nil {
		return nil, err
	}
	var labels map[string]string
	if j.labels != "" {
		if labels, err = Pairs("label spec", strings.Split(j.labels, ",")); err != nil {
			return nil, err
		}
	}
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: batchv1.JobSpec{
			BackoffLimit: &j.retries,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(labels)},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{c}, RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: j.account,
				},
			},
		},
	}, nil
}
