package httpserver

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/table"
	"github.com/sampan-io/sampan/catalog"
)

// includeObject reads how much of their objects a table's rows have.
func (x *exchange) includeObject() (metav1.IncludeObjectPolicy, error) {
	opts := metav1.TableOptions{IncludeObject: metav1.IncludeObjectPolicy(x.query().Get("includeObject"))}
	if errs := metavalidation.ValidateTableOptions(&opts); len(errs) > 0 {
		return "", apierrors.NewBadRequest("Unable to convert to Table as requested: " + errs.ToAggregate().Error())
	}
	return opts.IncludeObject, nil
}

// reshape turns the result of an operation into the form that the client wants.
func (x *exchange) reshape(f codec.Form, r operation.Result, t *operation.Target) (runtime.Object, error) {
	if status, ok := r.Made.(*metav1.Status); ok {
		return status, nil // a status object is answered as it is
	}
	obj, ok := r.Object().(catalog.Object)
	if !ok {
		return nil, notThatForm()
	}
	switch f {
	case codec.MetadataOnly:
		return table.Metadata(obj), nil
	case codec.Table:
		if obj.GetObjectKind().GroupVersionKind() != t.Kind.GroupVersionKind {
			break // a view has no columns
		}
		row := obj
		if !t.Kind.Untyped() { // whose columns are of each version
			var err error
			if row, err = t.Kind.ToHub(obj); err != nil {
				return nil, apierrors.NewInternalError(err)
			}
		}
		include, err := x.includeObject()
		if err != nil {
			return nil, err
		}
		return tableOf(x.r.Context(), t.Kind, []catalog.Object{row}, metav1.ListMeta{ResourceVersion: obj.GetResourceVersion()}, include,
			func(int) ([]byte, error) { return wholeJSON(r) })
	case codec.Whole, codec.MetadataList:
	}
	return nil, notThatForm()
}

// notThatForm is the answer to a client that wants a form which the answer has not.
func notThatForm() error {
	_, err := codec.Negotiate("none", codec.Offer{})
	return err
}

// wholeJSON returns the JSON of the object that an operation answers with.
func wholeJSON(r operation.Result) ([]byte, error) {
	if r.Item != nil {
		return r.Item.JSON()
	}
	return codec.Encode(codec.Media{}, r.Made)
}

// jsonIn returns the JSON of a stored object in the version of the kind.
func jsonIn(ctx context.Context, kind *catalog.Kind, item *codec.Item) ([]byte, error) {
	shown, err := item.In(ctx, kind)
	if err != nil {
		return nil, err
	}
	return shown.JSON()
}

func (x *exchange) reshapeList(f codec.Form, l operation.Listing, t *operation.Target) (runtime.Object, error) {
	objs := make([]catalog.Object, len(l.Items))
	for i, item := range l.Items {
		if i%rowsBetweenLooks == 0 && x.r.Context().Err() != nil {
			return nil, context.Cause(x.r.Context())
		}
		objs[i] = item.Object()
	}
	switch f {
	case codec.MetadataList:
		return table.MetadataList(l.Meta, objs), nil
	case codec.Table:
		include, err := x.includeObject()
		if err != nil {
			return nil, err
		}
		return tableOf(x.r.Context(), t.Kind, objs, l.Meta, include, func(i int) ([]byte, error) { return jsonIn(x.r.Context(), t.Kind, l.Items[i]) })
	case codec.Whole, codec.MetadataOnly:
	}
	return nil, notThatForm()
}

// rowsBetweenLooks is after how many objects an answer looks whether its client is still there.
const rowsBetweenLooks = 64

// tableOf makes a table of objects; whole returns the JSON of one of them. When ctx is over it returns the cause.
func tableOf(ctx context.Context, kind *catalog.Kind, objs []catalog.Object, meta metav1.ListMeta, include metav1.IncludeObjectPolicy, whole func(i int) ([]byte, error)) (*metav1.Table, error) {
	out := table.New(kind)
	out.ListMeta = meta
	now := time.Now()
	for i, obj := range objs {
		if i%rowsBetweenLooks == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		row, err := table.Row(kind, obj, now, include, func() ([]byte, error) { return whole(i) })
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		out.Rows = append(out.Rows, row)
	}
	return out, nil
}
