package main

import (
	"context"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// The ConfigMap with the settings of the controller, which config/settings.yaml makes. Its key image is the web server
// of Websites that name none.
const (
	settingsNamespace = "default"
	settingsName      = "website-settings"
)

// conditionAvailable is the type of the condition that is true when all replicas of a Website are available.
const conditionAvailable = "Available"

// A reconciler makes the objects of Websites.
type reconciler struct{ client.Client }

// setUp adds a reconciler to a manager.
func setUp(mgr ctrl.Manager, options controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).For(&Website{}).Owns(&appsv1.Deployment{}).Owns(&corev1.ConfigMap{}).
		WithOptions(options).Complete(reconciler{mgr.GetClient()})
}

// Reconcile makes the objects of a Website and writes its status.
func (r reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	site := &Website{}
	if err := r.Get(ctx, req.NamespacedName, site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !site.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the garbage collector deletes the dependents
	}
	image, err := r.image(ctx, site)
	if err != nil {
		return ctrl.Result{}, err
	}
	page := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, page, func() error {
		page.Data = map[string]string{"index.html": site.Spec.Page}
		return controllerutil.SetControllerReference(site, page, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}
	servers := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, servers, func() error {
		deploy(site, image, servers)
		return controllerutil.SetControllerReference(site, servers, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}
	if meta.SetStatusCondition(&site.Status.Conditions, available(site, servers)) {
		return ctrl.Result{}, r.Status().Update(ctx, site)
	}
	return ctrl.Result{}, nil
}

// image returns the image of the web server of a Website.
func (r reconciler) image(ctx context.Context, site *Website) (string, error) {
	if site.Spec.Image != "" {
		return site.Spec.Image, nil
	}
	settings := &corev1.ConfigMap{}
	if err := r.Get(ctx, client.ObjectKey{Namespace: settingsNamespace, Name: settingsName}, settings); err != nil {
		return "", err
	}
	image := settings.Data["image"]
	if image == "" {
		return "", fmt.Errorf("the ConfigMap %s/%s has no key image", settingsNamespace, settingsName)
	}
	return image, nil
}

// deploy changes a Deployment to run the web servers of a Website.
func deploy(site *Website, image string, d *appsv1.Deployment) {
	labels := map[string]string{"example.com/website": site.Name}
	d.Spec.Replicas = site.Spec.Replicas
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = maps.Clone(labels)
	pod := &d.Spec.Template.Spec
	if len(pod.Containers) == 0 { // otherwise keep the defaults that the API server has set
		pod.Containers = []corev1.Container{{Name: "server"}}
		pod.Volumes = []corev1.Volume{{Name: "page"}}
	}
	pod.Containers[0].Image = image
	pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "page", MountPath: "/usr/share/nginx/html"}}
	if pod.Volumes[0].ConfigMap == nil {
		pod.Volumes[0].ConfigMap = &corev1.ConfigMapVolumeSource{}
	}
	pod.Volumes[0].ConfigMap.Name = site.Name
}

// available returns the condition of a Website by the status of its Deployment.
func available(site *Website, d *appsv1.Deployment) metav1.Condition {
	c := metav1.Condition{
		Type: conditionAvailable, Status: metav1.ConditionFalse, Reason: "Progressing", ObservedGeneration: site.Generation,
	}
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	if d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas >= want {
		c.Status, c.Reason = metav1.ConditionTrue, "AllReplicasAvailable"
	}
	c.Message = fmt.Sprintf("%d of %d replicas are available", d.Status.AvailableReplicas, want)
	return c
}
