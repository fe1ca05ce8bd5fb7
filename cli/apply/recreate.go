package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/resource"
)

// goneLimit is how long recreate waits for the deletion of an object.
const goneLimit = 5 * time.Minute

// recreate deletes an object that the server refuses to change, waits until it is gone, and
// makes it as it is wanted. If that is refused as well, what was there is made again. The
// reason is the refusal.
func (a *Applier) recreate(ctx context.Context, info resource.Info, reason error) (Result, error) {
	live, err := a.get(ctx, info)
	if apierrors.IsNotFound(err) {
		return Result{}, reason // it could not be made in the first place
	}
	if err != nil {
		return Result{}, err
	}
	uid, background := live.GetUID(), metav1.DeletePropagationBackground
	err = a.opts.Client.Delete(ctx, info.Mapping.GroupVersionResource, info.Namespace, info.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background,
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return Result{}, fmt.Errorf("deleting it to recreate it: %w", err)
	}
	out, err := await.Until(ctx, a.opts.Client, await.Request{For: await.Deleted, Timeout: goneLimit, Quiet: true, Targets: []await.Target{{
		Resource: info.Mapping.GroupVersionResource, Kind: info.Mapping.Kind, Namespace: info.Namespace, Name: info.Name, UID: uid,
	}}}, nil)
	switch {
	case err != nil:
		return Result{}, fmt.Errorf("waiting for its deletion to recreate it: %w", err)
	case out.Result != await.AllDone:
		return Result{}, fmt.Errorf("it is being deleted to be recreated, and still exists after %v: apply it again once it is deleted", goneLimit)
	}
	r, err := a.once(ctx, info)
	if err == nil {
		r.Action = Configured
		return r, nil
	}
	if again := a.restore(ctx, info, live); again != nil {
		return Result{}, fmt.Errorf("it was deleted, and neither the new nor the old object could be created (old: %s): %w", again.Error(), err)
	}
	return Result{}, fmt.Errorf("the old object was restored, because the new one could not be created: %w", err)
}

// restore creates a deleted object again, with its managedFields.
func (a *Applier) restore(ctx context.Context, info resource.Info, was *unstructured.Unstructured) error {
	was, account := was.DeepCopy(), was.GetManagedFields()
	for _, field := range []string{"resourceVersion", "uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"} {
		unstructured.RemoveNestedField(was.Object, "metadata", field)
	}
	gvr := info.Mapping.GroupVersionResource
	if _, err := a.opts.Client.Create(ctx, gvr, info.Namespace, "", was, metav1.CreateOptions{}, ""); err != nil || len(account) == 0 {
		return err
	}
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/metadata/managedFields", "value": account}})
	if err != nil {
		return err
	}
	_, err = a.opts.Client.Patch(ctx, gvr, info.Namespace, info.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: a.manager()}, "")
	return err
}
