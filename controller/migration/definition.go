package migration

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

type definition = apiextensionsv1.CustomResourceDefinition

var definitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// markDefinition records in the definition of the migrated resource, if it has one, that a migration runs, and of which
// generation of the definition.
func (m *migrator) markDefinition(ctx context.Context, one *migration) error {
	return m.changeDefinition(ctx, one, func(d *definition) {
		apihelpers.SetCRDCondition(d, migrating(d, apiextensionsv1.ConditionTrue, "MigrationRunning", fmt.Sprintf("Migration %s is running", one.Name)))
	})
}

// finishDefinition records there how a migration has ended. After a success all objects are stored in the storage version,
// unless the definition has changed in the meantime.
func (m *migrator) finishDefinition(ctx context.Context, one *migration, success bool) error {
	return m.changeDefinition(ctx, one, func(d *definition) {
		mark := apihelpers.FindCRDCondition(d, apiextensionsv1.StorageMigrating)
		same := mark != nil && mark.ObservedGeneration == d.Generation
		reason, message := "MigrationFailed", "The migration has failed"
		if success {
			reason, message = "MigrationSucceeded", "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
			if same {
				message = "The migration has succeeded and the stored versions have been updated"
				d.Status.StoredVersions = storageVersion(d)
			}
		}
		apihelpers.SetCRDCondition(d, migrating(d, apiextensionsv1.ConditionFalse, reason, message))
	})
}

func migrating(d *definition, status apiextensionsv1.ConditionStatus, reason, message string) apiextensionsv1.CustomResourceDefinitionCondition {
	return apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.StorageMigrating, Status: status, Reason: reason, Message: message, ObservedGeneration: d.Generation,
	}
}

func storageVersion(d *definition) []string {
	for _, v := range d.Spec.Versions {
		if v.Storage {
			return []string{v.Name}
		}
	}
	return nil
}

// changeDefinition writes the status of the definition, unless it has changed since it was read: then the error is a
// conflict. Built-in resources have no definition.
func (m *migrator) changeDefinition(ctx context.Context, one *migration, change func(*definition)) error {
	if one.Spec.Resource.Group == "" {
		return nil
	}
	at := one.Spec.Resource.Resource + "." + one.Spec.Resource.Group
	obj, err := m.client.Get(ctx, definitions, "", at, "")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read definition %s: %w", at, err)
	}
	text, err := json.Marshal(obj) // the client may not know the Go type
	if err != nil {
		return err
	}
	d := &definition{}
	if err := json.Unmarshal(text, d); err != nil {
		return fmt.Errorf("read definition %s: %w", at, err)
	}
	change(d)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": d.ResourceVersion},
		"status":   map[string]any{"conditions": d.Status.Conditions, "storedVersions": d.Status.StoredVersions},
	})
	if err != nil {
		return err
	}
	_, err = m.client.Patch(ctx, definitions, "", at, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: name}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write status of definition %s: %w", at, err)
	}
	return nil
}
