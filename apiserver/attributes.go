package apiserver

import (
	"context"
	"encoding/json"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/audit"
	"github.com/sampan-io/sampan/catalog"
)

// attributes returns those of a write for admission, which the caller completes with the objects.
func (t *target) attributes(ctx context.Context, operation admission.Operation, dryRun bool) admission.Attributes {
	return admission.Attributes{
		Operation: operation, Kind: t.kind.Hub(), Served: t.kind, Subresource: t.subName(), Namespace: t.namespace, Name: t.name,
		Generated: t.generated, Inner: t.inner, User: t.user, Options: t.options, DryRun: dryRun, Audit: audit.From(ctx),
	}
}

// optionsOf returns an object of meta.k8s.io/v1 as admission shows it.
func optionsOf(opts runtime.Object, kind string) runtime.Object {
	opts.GetObjectKind().SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(kind))
	return opts
}

func createOptions(o metav1.CreateOptions) runtime.Object { return optionsOf(&o, "CreateOptions") }

func updateOptions(o metav1.UpdateOptions) runtime.Object { return optionsOf(&o, "UpdateOptions") }

// patches makes the options those of an update, which a patch is for admission.
func (t *target) patches(o *metav1.PatchOptions) {
	t.options = updateOptions(metav1.UpdateOptions{DryRun: o.DryRun, FieldManager: o.FieldManager, FieldValidation: o.FieldValidation})
}

// creates makes the options those of a creation: an update and an apply of an object that does not exist are creations.
func (t *target) creates(dryRun []string, manager, validation string) {
	t.options = createOptions(metav1.CreateOptions{DryRun: dryRun, FieldManager: manager, FieldValidation: validation})
}

func removeOptions(o *metav1.DeleteOptions) runtime.Object {
	return optionsOf(o.DeepCopy(), "DeleteOptions")
}

// streamOptions returns the options of a stream, from the query of its URL. What does not fit a field is left out: the handler
// of the stream refuses it.
func streamOptions(stream catalog.Stream, query url.Values, rest string) runtime.Object {
	if stream.Body == nil || stream.New == nil {
		return nil
	}
	opts := stream.New()
	v := reflect.ValueOf(opts).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if values := query[name]; name != "" && len(values) > 0 {
			setOption(v.Field(i), values)
		}
	}
	if path := v.FieldByName("Path"); stream.Ported && path.IsValid() && path.Kind() == reflect.String && rest != "" {
		path.SetString(rest)
	}
	opts.GetObjectKind().SetGroupVersionKind(stream.Kind)
	return opts
}

func setOption(f reflect.Value, values []string) {
	switch f.Kind() {
	case reflect.String:
		f.SetString(values[0])
	case reflect.Bool:
		b, err := strconv.ParseBool(values[0])
		f.SetBool(b || err != nil) // an empty value is true
	case reflect.Slice:
		if f.Type().Elem().Kind() == reflect.String {
			f.Set(reflect.ValueOf(values).Convert(f.Type()))
			return
		}
		_ = json.Unmarshal([]byte("["+strings.Join(values, ",")+"]"), f.Addr().Interface())
	default:
		_ = json.Unmarshal([]byte(values[0]), f.Addr().Interface())
	}
}
