package apply

import (
	"cmp"
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
	"github.com/sampan-io/sampan/client"
)

// goneLimit is how long recreate waits for the deletion of an object.
const goneLimit = 5 * time.Minute

// A Recreation deletes one object and creates it in another form.
type Recreation struct {
	Client  client.Interface
	Object  resource.Info              // as it is wanted
	Live    *unstructured.Unstructured // as it is
	Delete  metav1.DeleteOptions       // a precondition on the UID is added
	Limit   time.Duration              // how long the deletion may take; 0 means five minutes
	Again   string                     // what to do once the deletion is complete after all; for an error
	Manager string                     // of the fields of the old object, if it has to be restored
	Deleted func()                     // is called when the object is deleted; may be nil
}

// Do deletes the object, waits until it is deleted, and calls create. If that fails, the old object is created again.
func (r Recreation) Do(ctx context.Context, create func() error) error {
	gvr, uid, limit := r.Object.Mapping.GroupVersionResource, r.Live.GetUID(), cmp.Or(r.Limit, goneLimit)
	r.Delete.Preconditions = &metav1.Preconditions{UID: &uid}
	err := r.Client.Delete(ctx, gvr, r.Object.Namespace, r.Object.Name, r.Delete)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting it to recreate it: %w", err)
	}
	out, err := await.Until(ctx, r.Client, await.Request{For: await.Deleted, Timeout: limit, Quiet: true, Targets: []await.Target{{
		Resource: gvr, Kind: r.Object.Mapping.Kind, Namespace: r.Object.Namespace, Name: r.Object.Name, UID: uid,
	}}}, nil)
	switch {
	case err != nil:
		return fmt.Errorf("waiting for its deletion to recreate it: %w", err)
	case out.Result != await.AllDone:
		return fmt.Errorf("it is being deleted to be recreated, and still exists after %v: %s once it is deleted", limit, r.Again)
	}
	if r.Deleted != nil {
		r.Deleted()
	}
	if err = create(); err == nil {
		return nil
	}
	if again := r.restore(ctx); again != nil {
		return fmt.Errorf("it was deleted, and neither the new nor the old object could be created (old: %s): %w", again.Error(), err)
	}
	return fmt.Errorf("the old object was restored, because the new one could not be created: %w", err)
}

// recreate deletes an object that the server refuses to change, and creates it as it is wanted. The reason is the refusal.
func (a *Applier) recreate(ctx context.Context, info resource.Info, reason error) (Result, error) {
	live, err := a.get(ctx, info)
	if apierrors.IsNotFound(err) {
		return Result{}, reason // it could not be made in the first place
	}
	if err != nil {
		return Result{}, err
	}
	background := metav1.DeletePropagationBackground
	var made Result
	err = Recreation{
		Client: a.opts.Client, Object: info, Live: live, Delete: metav1.DeleteOptions{PropagationPolicy: &background},
		Again: "apply it again", Manager: a.manager(),
	}.Do(ctx, func() (err error) {
		made, err = a.once(ctx, info)
		return err
	})
	made.Action = Configured
	return made, err
}

// restore creates the deleted object again, with its managedFields.
func (r Recreation) restore(ctx context.Context) error {
	was, account := r.Live.DeepCopy(), r.Live.GetManagedFields()
	for _, field := range []string{"resourceVersion", "uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"} {
		unstructured.RemoveNestedField(was.Object, "metadata", field)
	}
	gvr := r.Object.Mapping.GroupVersionResource
	if _, err := r.Client.Create(ctx, gvr, r.Object.Namespace, "", was, metav1.CreateOptions{}, ""); err != nil || len(account) == 0 {
		return err
	}
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/metadata/managedFields", "value": account}})
	if err != nil {
		return err
	}
	_, err = r.Client.Patch(ctx, gvr, r.Object.Namespace, r.Object.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: r.Manager}, "")
	return err
}
