package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	migrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

const (
	name = "storage-version-migrator-controller"

	// discoveryGrace is how long a resource may be unknown after the creation of its migration.
	discoveryGrace = time.Minute
)

type migration = migrationv1.StorageVersionMigration

// Options configures the controller. Client is required.
type Options struct {
	controller.Config

	// Resources are all resources that the cluster serves and stores.
	Resources []client.Resource[client.Object]

	// Served returns the custom resources that are served. It may be nil.
	Served cache.Served
}

// migrator carries out migrations, one at a time.
type migrator struct {
	client     client.Interface
	migrations *cache.Cache[*migration]
	resources  []client.Resource[client.Object]
	served     cache.Served
}

// Tasks returns the controller, to be run together as one stage.
func Tasks(opts Options) []run.Task {
	config, caches := opts.WithDefaults()
	config = config.For(name)
	m := &migrator{client: config.Client, migrations: cache.Of(config.Caches, client.StorageVersionMigrations, nil), resources: opts.Resources, served: opts.Served}
	loop := controller.New(controller.Options{
		Name: name, Reconcile: m.reconcile, Workers: 1, Log: config.Log, Needs: []<-chan struct{}{m.migrations.Ready()},
	})
	m.migrations.Subscribe(func(_, after *migration) {
		if after != nil && !finished(after) {
			loop.Add(controller.KeyOf(after))
		}
	})
	return []run.Task{caches, loop.Task()}
}

func finished(one *migration) bool {
	return meta.IsStatusConditionTrue(one.Status.Conditions, string(migrationv1.MigrationSucceeded)) ||
		meta.IsStatusConditionTrue(one.Status.Conditions, string(migrationv1.MigrationFailed))
}

func (m *migrator) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	one, ok := m.migrations.Get("", key.Name)
	if !ok || one.DeletionTimestamp != nil || finished(one) {
		return controller.Result{}, nil
	}
	resources := slices.Clone(m.resources)
	if m.served != nil {
		custom, _ := m.served()
		for _, r := range custom {
			if !r.Elsewhere { // its server stores it
				resources = append(resources, r.Resource)
			}
		}
	}
	i := slices.IndexFunc(resources, func(r client.Resource[client.Object]) bool {
		return r.Group == one.Spec.Resource.Group && r.Resource == one.Spec.Resource.Resource
	})
	if i < 0 {
		if left := discoveryGrace - time.Since(one.CreationTimestamp.Time); left > 0 {
			return controller.Result{After: left}, nil
		}
		return controller.Result{}, m.end(ctx, one, migrationv1.MigrationFailed, "resource does not exist in discovery")
	}
	resource := resources[i]
	objects, list, err := resource.List(ctx, m.client, "", metav1.ListOptions{})
	if err != nil {
		return controller.Result{}, fmt.Errorf("list %s: %w", resource.GroupResource(), err)
	}
	if one, err = m.begin(ctx, one, list.ResourceVersion); err != nil || one == nil {
		return controller.Result{}, err
	}
	// After a restart, objects that were written since the beginning are done.
	objects = slices.DeleteFunc(objects, func(o client.Object) bool {
		order, err := resourceversion.CompareResourceVersion(o.GetResourceVersion(), one.Status.ResourceVersion)
		return err == nil && order > 0
	})
	for done, o := range objects {
		err := m.rewrite(ctx, resource, o)
		switch {
		case ctx.Err() != nil:
			return controller.Result{}, nil
		case apierrors.IsServerTimeout(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err), apierrors.IsTimeout(err):
			left := fmt.Sprintf("The migration is running, %d/%d objects not yet migrated; transient error: %v", len(objects)-done, len(objects), err)
			return controller.Result{}, errors.Join(err, m.setConditions(ctx, one, running(left)))
		case err != nil:
			return controller.Result{}, m.end(ctx, one, migrationv1.MigrationFailed,
				fmt.Sprintf("%d/%d not yet migrated. migration encountered unhandled error: %v", len(objects)-done, len(objects), err))
		}
	}
	return controller.Result{}, m.end(ctx, one, migrationv1.MigrationSucceeded, "Migration completed")
}

func running(message string) metav1.Condition {
	return metav1.Condition{Type: string(migrationv1.MigrationRunning), Status: metav1.ConditionTrue, Reason: "MigrationRunning", Message: message}
}

// begin records that a migration runs, and up to which resource version it writes objects. It returns nil if the migration is gone.
func (m *migrator) begin(ctx context.Context, one *migration, version string) (*migration, error) {
	updated := one.DeepCopy()
	if updated.Status.ResourceVersion == "" {
		updated.Status.ResourceVersion = version
	}
	if !meta.IsStatusConditionTrue(updated.Status.Conditions, string(migrationv1.MigrationRunning)) {
		if err := m.markDefinition(ctx, one); err != nil {
			return nil, err
		}
		meta.SetStatusCondition(&updated.Status.Conditions, running("The migration is running"))
	}
	if equality.Semantic.DeepEqual(one.Status, updated.Status) {
		return one, nil
	}
	return m.write(ctx, updated)
}

// rewrite writes an object as it is, unless it has changed since it was read: then it has been written.
func (m *migrator) rewrite(ctx context.Context, resource client.Resource[client.Object], o client.Object) error {
	version, kind := resource.GVK().ToAPIVersionAndKind()
	patch, err := json.Marshal(map[string]any{
		"apiVersion": version, "kind": kind,
		"metadata": map[string]any{"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion()},
	})
	if err != nil {
		return err
	}
	_, err = m.client.Patch(ctx, resource.GroupVersionResource, o.GetNamespace(), o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: name}, "")
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// end records the end of a migration.
func (m *migrator) end(ctx context.Context, one *migration, how migrationv1.MigrationConditionType, message string) error {
	reason := "StorageVersionMigrationSucceeded"
	if how == migrationv1.MigrationFailed {
		reason = "StorageVersionMigrationFailed"
	}
	conditions := []metav1.Condition{{Type: string(how), Status: metav1.ConditionTrue, Reason: reason, Message: message}}
	if meta.IsStatusConditionTrue(one.Status.Conditions, string(migrationv1.MigrationRunning)) {
		if err := m.finishDefinition(ctx, one, how == migrationv1.MigrationSucceeded); err != nil {
			return err
		}
		conditions = append(conditions, metav1.Condition{
			Type: string(migrationv1.MigrationRunning), Status: metav1.ConditionFalse, Reason: "MigrationCompleted", Message: "Migration completed",
			ObservedGeneration: one.Generation,
		})
	}
	return m.setConditions(ctx, one, conditions...)
}

func (m *migrator) setConditions(ctx context.Context, one *migration, conditions ...metav1.Condition) error {
	updated := one.DeepCopy()
	for _, c := range conditions {
		meta.SetStatusCondition(&updated.Status.Conditions, c)
	}
	if equality.Semantic.DeepEqual(one.Status, updated.Status) {
		return nil
	}
	_, err := m.write(ctx, updated)
	return err
}

// write writes the status of a migration and waits until the cache has it. It returns nil if the migration is gone.
func (m *migrator) write(ctx context.Context, updated *migration) (*migration, error) {
	now, err := client.StorageVersionMigrations.Update(ctx, m.client, updated, "status")
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("write status of storageversionmigration %s: %w", updated.Name, err)
	}
	return now, m.migrations.Await(ctx, now.ResourceVersion)
}
