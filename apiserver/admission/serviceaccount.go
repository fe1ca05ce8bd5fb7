package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/rand"
)

const (
	tokenMountPath   = "/var/run/secrets/kubernetes.io/serviceaccount"
	tokenVolume      = "kube-api-access"
	rootCAConfigMap  = "kube-root-ca.crt"
	tokenLife        = 3607 // seconds; as in Kubernetes, where clients know this number
	defaultAccount   = "default"
	accountPatience  = time.Second // that a pod waits for the default service account of a namespace just made
	publicFileMode   = int32(0o644)
	mirrorAnnotation = corev1.MirrorPodAnnotationKey
)

// ServiceAccount gives every pod a service account, and a token of it to talk to
// the API server with, unless the pod or the account does not want one.
//
// The default service account of a namespace is made by a controller after the
// namespace. A pod that comes in between waits for it a moment, whichever server
// stores it.
type ServiceAccount struct{ reader Reader }

// NewServiceAccount returns the plug-in.
func NewServiceAccount(r Reader) *ServiceAccount { return &ServiceAccount{reader: r} }

// Name implements [Plugin].
func (*ServiceAccount) Name() string { return "ServiceAccount" }

// Admit implements [Mutator].
func (p *ServiceAccount) Admit(ctx context.Context, a *Attributes) error {
	pod := a.createdPod()
	if pod == nil {
		return nil
	}
	if _, mirror := pod.Annotations[mirrorAnnotation]; mirror {
		return admitMirror(a, pod)
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultAccount
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName // the field's old name, kept the same
	account, err := p.account(ctx, a.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return refuse(a, "error looking up service account %s/%s: %w", a.Namespace, pod.Spec.ServiceAccountName, err)
	}
	if automount(account, pod) {
		mountToken(pod)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = slices.Clone(account.ImagePullSecrets)
	}
	return nil
}

// admitMirror leaves a mirror pod as it is, because the node that made it compares; but it
// must not give a node data of others.
func admitMirror(a *Attributes, pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return refuse(a, "a mirror pod may not reference service accounts")
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ServiceAccountToken != nil {
				return refuse(a, "a mirror pod may not use ServiceAccountToken volume projections")
			}
		}
	}
	return nil
}

func (p *ServiceAccount) account(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	o, err := p.reader.Get(ctx, core("serviceaccounts"), namespace, name)
	if apierrors.IsNotFound(err) && name == defaultAccount {
		ctx, cancel := context.WithTimeout(ctx, accountPatience)
		defer cancel()
		o, err = p.reader.Await(ctx, core("serviceaccounts"), namespace, name)
	}
	if err != nil {
		return nil, err
	}
	account, ok := o.(*corev1.ServiceAccount)
	if !ok {
		return nil, fmt.Errorf("it is a %T", o)
	}
	return account, nil
}

// automount says whether a pod gets a token. The pod has the last word.
func automount(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	switch {
	case pod.Spec.AutomountServiceAccountToken != nil:
		return *pod.Spec.AutomountServiceAccountToken
	case account.AutomountServiceAccountToken != nil:
		return *account.AutomountServiceAccountToken
	}
	return true
}

// mountToken mounts the token into every container that has nothing at that place.
func mountToken(pod *corev1.Pod) {
	// A pod that was written down with the volume of another run keeps it.
	name, there := tokenVolume+"-"+rand.String(5), false
	for _, v := range pod.Spec.Volumes {
		if strings.HasPrefix(v.Name, tokenVolume+"-") {
			name, there = v.Name, true
			break
		}
	}
	needed := false
	mount := func(mounts []corev1.VolumeMount) []corev1.VolumeMount {
		if slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenMountPath }) {
			return mounts
		}
		needed = true
		return append(mounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenMountPath})
	}
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i].VolumeMounts = mount(pod.Spec.InitContainers[i].VolumeMounts)
	}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].VolumeMounts = mount(pod.Spec.Containers[i].VolumeMounts)
	}
	if needed && !there {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenProjection()}})
	}
}

// tokenProjection is the token, the authority to know the API server by, and the
// namespace: what client libraries expect in that directory.
func tokenProjection() *corev1.ProjectedVolumeSource {
	mode, life := publicFileMode, int64(tokenLife)
	return &corev1.ProjectedVolumeSource{
		DefaultMode: &mode,
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &life}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: rootCAConfigMap},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path:     "namespace",
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}
}
