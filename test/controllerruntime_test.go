package test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// greeter gives each ConfigMap that asks for it a Secret, and takes leave by a
// finalizer.
type greeter struct{ client.Client }

const greets = "example.com/greets"

func (g greeter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cm corev1.ConfigMap
	if err := g.Get(ctx, req.NamespacedName, &cm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if _, asks := cm.Labels[greets]; !asks {
		return ctrl.Result{}, nil
	}
	if !cm.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(&cm, greets) {
			return ctrl.Result{}, g.Update(ctx, &cm)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(&cm, greets) {
		return ctrl.Result{}, g.Update(ctx, &cm)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, g.Client, secret, func() error {
		secret.StringData = map[string]string{"greeting": "hello " + cm.Data["name"]}
		return controllerutil.SetControllerReference(&cm, secret, g.Scheme())
	})
	return ctrl.Result{}, err
}

func TestAControllerOfControllerRuntime(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(soon(t))
	_, cfg := simulated(t, 1)
	ctrl.SetLogger(klog.Background())
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Metrics: metrics.Options{BindAddress: "0"}, LeaderElection: true, LeaderElectionID: "greeter", LeaderElectionNamespace: "default",
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Complete(greeter{mgr.GetClient()}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	c, err := client.NewWithWatch(cfg, client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(ctx, &corev1.SecretList{}, client.InNamespace("default"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	// await reads on until the secret has the greeting, or is gone if there is none.
	await := func(greeting string) {
		t.Helper()
		for e := range w.ResultChan() {
			s, ok := e.Object.(*corev1.Secret)
			if !ok {
				t.Fatalf("%s: %v", e.Type, e.Object)
			}
			if (e.Type == "DELETED") == (greeting == "") && (greeting == "" || string(s.Data["greeting"]) == greeting) {
				return
			}
		}
		t.Fatalf("the watch ended before there was %q", greeting)
	}
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "crew", Labels: map[string]string{greets: ""}},
		Data:       map[string]string{"name": "Anna"},
	}
	if err := c.Create(ctx, cm); err != nil {
		t.Fatal(err)
	}
	await("hello Anna")
	before := client.MergeFrom(cm.DeepCopy())
	cm.Data["name"] = "Bruno"
	if err := c.Patch(ctx, cm, before); err != nil {
		t.Fatal(err)
	}
	await("hello Bruno")
	// The controller recreates an object that it owns when another client deletes it.
	if err := c.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "crew"}}); err != nil {
		t.Fatal(err)
	}
	await("")
	await("hello Bruno")
	// And goes with its owner.
	if err := c.Delete(ctx, cm); err != nil {
		t.Fatal(err)
	}
	await("")
}
