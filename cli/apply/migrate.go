package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sampan-io/sampan/cli/resource"
)

// merged reports whether an object was last applied by a three-way merge.
func merged(live *unstructured.Unstructured) bool {
	_, found := live.GetAnnotations()[LastApplied]
	return found
}

// migrate moves an object from three-way merges to server-side apply. It makes a last
// merge, which removes the annotation and the fields that are no longer in the file;
// transfers the fields of the merging managers to the server-side manager; and applies
// again, so that the server removes those of them that are no longer in the file.
//
// Every step can be repeated: the next apply continues an interrupted migration,
// because either the annotation still exists or nothing is left to do.
// A dry run ends with the merge, on which the other steps depend.
func (a *Applier) migrate(ctx context.Context, info resource.Info, live *unstructured.Unstructured, body []byte) (*unstructured.Unstructured, error) {
	managers := mergers(live)
	if a.opts.DryRun == ForReal {
		upgraded, err := a.upgrade(ctx, info, live, managers)
		if err != nil {
			return nil, err
		}
		live = upgraded
	}
	for range tries {
		text, err := encode(live)
		if err != nil {
			return nil, err
		}
		original, err := withAnnotation(live.GetAnnotations()[LastApplied])
		if err != nil {
			return nil, err
		}
		patch, err := Merge(info.Mapping.GVK(), original, body, text)
		if err != nil {
			return nil, err
		}
		opts := metav1.PatchOptions{DryRun: a.opts.DryRun.options(), FieldManager: a.manager(), FieldValidation: a.opts.Validation}
		obj, err := answer(a.opts.Client.Patch(ctx, info.Mapping.GroupVersionResource, info.Namespace, info.Name, patch.Type, patch.Body, opts, ""))
		switch {
		case apierrors.IsConflict(err):
			if live, err = a.get(ctx, info); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			return nil, err
		case a.opts.DryRun != ForReal:
			return obj, nil
		}
		// The fields that the merge wrote belong to a separate managed-fields entry for updates.
		if _, err = a.upgrade(ctx, info, obj, sets.New(a.manager())); err != nil {
			return nil, err
		}
		if obj, err = a.send(ctx, info, body, a.opts.Force); err != nil {
			return nil, err
		}
		return a.disown(ctx, info, obj)
	}
	return nil, apierrors.NewConflict(info.Mapping.GroupResource(), info.Name, nil)
}

// mergers returns the names of the managers that wrote the annotation by an update.
// It leaves out unmanaged: that entry also has the fields that the server and the
// controllers set, and the next apply would remove all of them.
func mergers(live *unstructured.Unstructured) sets.Set[string] {
	path := fieldpath.NewSet(fieldpath.MakePathOrDie("metadata", "annotations", LastApplied))
	names := sets.New[string]()
	for _, entry := range csaupgrade.FindFieldsOwners(live.GetManagedFields(), metav1.ManagedFieldsOperationUpdate, path) {
		if entry.Manager != unmanaged {
			names.Insert(entry.Manager)
		}
	}
	return names
}

// upgrade gives the fields that managers own by updates to the server-side manager, and
// returns the object as it then is.
func (a *Applier) upgrade(ctx context.Context, info resource.Info, live *unstructured.Unstructured, managers sets.Set[string]) (*unstructured.Unstructured, error) {
	var err error
	for range tries {
		patch, bad := csaupgrade.UpgradeManagedFieldsPatch(live, managers, a.manager())
		if bad != nil || patch == nil {
			return live, bad
		}
		var obj *unstructured.Unstructured
		obj, err = answer(a.opts.Client.Patch(ctx, info.Mapping.GroupVersionResource, info.Namespace, info.Name, types.JSONPatchType, patch,
			metav1.PatchOptions{FieldManager: a.manager()}, ""))
		if !apierrors.IsConflict(err) {
			return obj, err
		}
		if live, err = a.get(ctx, info); err != nil {
			return nil, err
		}
	}
	return nil, err
}

// withAnnotation returns the last applied object as if the annotation had been a part of
// it, so that a merge with something that lacks it removes it.
func withAnnotation(original string) ([]byte, error) {
	obj := map[string]any{}
	if original != "" {
		if err := json.Unmarshal([]byte(original), &obj); err != nil {
			return nil, fmt.Errorf("metadata.annotations[%s]: must be a JSON object: %w", LastApplied, err)
		}
	}
	if err := unstructured.SetNestedField(obj, "", "metadata", "annotations", LastApplied); err != nil {
		return nil, fmt.Errorf("metadata.annotations[%s]: must be a JSON object: %w", LastApplied, err)
	}
	return json.Marshal(obj)
}

// unmanaged is the manager to which a server assigns all fields of an object that had
// no managedFields when it was first applied.
const unmanaged = "before-first-apply"

// disown removes our fields from the entry of unmanaged. As long as both managers
// own a field, the server does not remove it when it leaves the file.
func (a *Applier) disown(ctx context.Context, info resource.Info, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	entries := live.GetManagedFields()
	ours, theirs := -1, -1
	for i, e := range entries {
		switch {
		case e.Manager == a.manager() && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "":
			ours = i
		case e.Manager == unmanaged && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == "":
			theirs = i
		}
	}
	if ours < 0 || theirs < 0 || entries[ours].FieldsV1 == nil || entries[theirs].FieldsV1 == nil || entries[ours].APIVersion != entries[theirs].APIVersion {
		return live, nil
	}
	var mine, rest fieldpath.Set
	if err := errors.Join(mine.FromJSON(entries[ours].FieldsV1.GetRawReader()), rest.FromJSON(entries[theirs].FieldsV1.GetRawReader())); err != nil {
		return nil, fmt.Errorf("reading the managedFields of %s: %w", info, err)
	}
	left, err := rest.Difference(&mine).ToJSON()
	if err != nil {
		return nil, fmt.Errorf("writing the managedFields of %s: %w", info, err)
	}
	entries[theirs].FieldsV1 = metav1.NewFieldsV1(string(left))
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": entries},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
	})
	if err != nil {
		return nil, err
	}
	obj, err := answer(a.opts.Client.Patch(ctx, info.Mapping.GroupVersionResource, info.Namespace, info.Name, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: a.manager()}, ""))
	if apierrors.IsConflict(err) {
		return live, nil // conflict with another writer: only a later removal is lost, not the applied configuration
	}
	return obj, err
}
