package roles

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

const name = "clusterrole-aggregation-controller"

// aggregated is the index of the roles with an aggregation rule, and the only value in it.
const aggregated = "aggregated"

// aggregation keeps the rules of aggregated roles.
type aggregation struct {
	client client.Interface
	roles  *cache.Cache[*rbacv1.ClusterRole]
	loop   *controller.Loop
}

// Tasks returns the controller, to be run together as one stage. Its client needs the verb escalate on
// ClusterRoles: it writes rules that it does not have itself.
func Tasks(opts controller.Config) []run.Task {
	opts, caches := opts.WithDefaults()
	opts = opts.For(name)
	a := &aggregation{client: opts.Client, roles: cache.Of(opts.Caches, client.ClusterRoles, cache.Indexes[*rbacv1.ClusterRole]{aggregated: func(r *rbacv1.ClusterRole) []string {
		if r.AggregationRule == nil {
			return nil
		}
		return []string{aggregated}
	}})}
	a.loop = controller.New(controller.Options{
		Name: name, Reconcile: a.reconcile, Workers: opts.Workers, Log: opts.Log,
		Needs: []<-chan struct{}{a.roles.Ready()}, Object: controller.ObjectOf(a.roles), Quarantine: opts.Quarantine,
	})
	a.roles.Subscribe(a.changed)
	return []run.Task{caches, a.loop.Task()}
}

// changed wakes the loop for all aggregated roles, which are few: any role may be selected by any of them.
func (a *aggregation) changed(_, _ *rbacv1.ClusterRole) {
	for _, r := range a.roles.ByIndex(aggregated, aggregated) {
		a.loop.Add(controller.KeyOf(r))
	}
}

func (a *aggregation) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	role, ok := a.roles.Get(key.Namespace, key.Name)
	if !ok || role.AggregationRule == nil {
		return controller.Result{}, nil
	}
	rules, err := Aggregate(role, a.roles.List(""))
	if err != nil || sameRules(rules, role.Rules) {
		return controller.Result{}, err
	}
	changed := role.DeepCopy()
	changed.Rules = rules
	_, err = client.ClusterRoles.UpdateBy(ctx, a.client, changed, "", name)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return controller.Result{}, err
}
