package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

// A wire serves the model API server over HTTP in JSON, with discovery documents,
// tables of names, and whatever a test adds under extra.
type wire struct {
	*clienttest.Server
	extra map[string]http.HandlerFunc // by path

	conflicts func() bool // whether a patch is to lose a race; nil means never
}

func serve(t *testing.T, objs ...client.Object) (*wire, string) {
	w := &wire{Server: clienttest.New(t, objs...), extra: map[string]http.HandlerFunc{}}
	s := httptest.NewServer(w)
	t.Cleanup(s.Close)
	return w, s.URL
}

var served = []struct {
	schema.GroupVersionResource
	kind       string
	namespaced bool
	short      string
}{
	{client.Pods.GroupVersionResource, "Pod", true, "po"},
	{client.ReplicationControllers.GroupVersionResource, "ReplicationController", true, "rc"},
	{client.Services.GroupVersionResource, "Service", true, "svc"},
	{client.ConfigMaps.GroupVersionResource, "ConfigMap", true, "cm"},
	{client.Nodes.GroupVersionResource, "Node", false, "no"},
	{client.Namespaces.GroupVersionResource, "Namespace", false, "ns"},
	{client.Jobs.GroupVersionResource, "Job", true, ""},
}

func (w *wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if h := w.extra[r.URL.Path]; h != nil {
		h(rw, r)
		return
	}
	switch r.URL.Path {
	case "/version":
		answer(rw, http.StatusOK, map[string]string{"gitVersion": "v1.37.0"})
		return
	case "/apis":
		answer(rw, http.StatusOK, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList"}, Groups: []metav1.APIGroup{{
			Name: "batch", PreferredVersion: metav1.GroupVersionForDiscovery{Version: "v1"},
			Versions: []metav1.GroupVersionForDiscovery{{Version: "v1"}},
		}}})
		return
	case "/api/v1", "/apis/batch/v1":
		var list metav1.APIResourceList
		for _, s := range served {
			if strings.HasSuffix(r.URL.Path, s.GroupVersion().String()) {
				a := metav1.APIResource{Name: s.Resource, SingularName: strings.ToLower(s.kind), Kind: s.kind, Namespaced: s.namespaced}
				if s.short != "" {
					a.ShortNames = []string{s.short}
				}
				if s.kind == "Pod" || s.kind == "Job" {
					a.Categories = []string{"all"}
				}
				list.APIResources = append(list.APIResources, a)
			}
		}
		answer(rw, http.StatusOK, list)
		return
	}
	w.resource(rw, r)
}

func (w *wire) resource(rw http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var gvr schema.GroupVersionResource
	if parts[0] == "apis" && len(parts) > 3 {
		gvr.Group, gvr.Version, parts = parts[1], parts[2], parts[3:]
	} else if len(parts) > 2 {
		gvr.Version, parts = parts[1], parts[2:]
	} else {
		fail(rw, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path))
		return
	}
	namespace, name, sub := "", "", ""
	if parts[0] == "namespaces" && len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	gvr.Resource = parts[0]
	if len(parts) > 1 {
		name = parts[1]
	}
	if len(parts) > 2 {
		sub = parts[2]
	}
	if strings.Contains(r.Header.Get("Content-Type"), "protobuf") {
		fail(rw, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", schema.GroupResource{}, "", "", 0, true))
		return
	}
	q := r.URL.Query()
	opts := metav1.ListOptions{
		LabelSelector: q.Get("labelSelector"), FieldSelector: q.Get("fieldSelector"),
		ResourceVersion: q.Get("resourceVersion"), AllowWatchBookmarks: q.Get("allowWatchBookmarks") == "true",
	}
	if v := q.Get("sendInitialEvents"); v != "" {
		yes := v == "true"
		opts.SendInitialEvents, opts.ResourceVersionMatch = &yes, metav1.ResourceVersionMatch(q.Get("resourceVersionMatch"))
	}
	body, _ := io.ReadAll(r.Body)
	ctx := r.Context()
	asTable := strings.Contains(r.Header.Get("Accept"), "as=Table")
	var obj runtime.Object
	var err error
	status := http.StatusOK
	switch {
	case r.Method == http.MethodGet && q.Get("watch") == "true":
		w.watch(rw, r, gvr, namespace, opts, asTable)
		return
	case r.Method == http.MethodGet && name == "":
		items, meta, listErr := w.List(ctx, gvr, namespace, opts)
		if listErr != nil {
			fail(rw, listErr)
			return
		}
		if asTable {
			answer(rw, status, tableOf(meta.ResourceVersion, items...))
			return
		}
		for i := range items {
			items[i] = kinded(items[i])
		}
		answer(rw, status, map[string]any{"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items})
		return
	case r.Method == http.MethodGet:
		obj, err = w.Get(ctx, gvr, namespace, name, sub)
	case r.Method == http.MethodPost, r.Method == http.MethodPut:
		var meta metav1.TypeMeta
		_ = json.Unmarshal(body, &meta)
		if obj, err = client.Scheme().New(meta.GroupVersionKind()); err == nil {
			err = json.Unmarshal(body, obj)
		}
		if err != nil {
			err = apierrors.NewBadRequest(err.Error())
			break
		}
		if r.Method == http.MethodPost {
			status = http.StatusCreated
			obj, err = w.Create(ctx, gvr, namespace, name, obj, metav1.CreateOptions{DryRun: q["dryRun"]}, sub)
		} else {
			obj, err = w.Update(ctx, gvr, namespace, name, obj, metav1.UpdateOptions{DryRun: q["dryRun"]}, sub)
		}
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == string(types.ApplyPatchType):
		err = apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", schema.GroupResource{}, "", "", 0, true)
	case r.Method == http.MethodPatch && w.conflicts != nil && w.conflicts():
		err = apierrors.NewConflict(gvr.GroupResource(), name, nil)
	case r.Method == http.MethodPatch:
		obj, err = w.Patch(ctx, gvr, namespace, name, types.PatchType(r.Header.Get("Content-Type")), body, metav1.PatchOptions{}, sub)
	case r.Method == http.MethodDelete:
		var o metav1.DeleteOptions
		_ = json.Unmarshal(body, &o)
		err = w.Delete(ctx, gvr, namespace, name, o)
		obj = &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}
	}
	switch {
	case err != nil:
		fail(rw, err)
	case asTable:
		answer(rw, status, tableOf("", obj))
	default:
		answer(rw, status, kinded(obj))
	}
}

func (w *wire) watch(rw http.ResponseWriter, r *http.Request, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions, asTable bool) {
	rw.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(rw).Flush()
	for e, err := range w.Watch(r.Context(), gvr, namespace, opts) {
		if err != nil {
			var status apierrors.APIStatus
			if s, ok := err.(apierrors.APIStatus); ok { // the model returns them bare
				status = s
				answer(rw, 0, map[string]any{"type": watch.Error, "object": status.Status()})
			}
			return
		}
		var o any = kinded(e.Object)
		if asTable {
			o = tableOf("", e.Object)
		}
		answer(rw, 0, map[string]any{"type": e.Type, "object": o})
		_ = http.NewResponseController(rw).Flush()
	}
}

func kinded(o runtime.Object) runtime.Object {
	gvk := client.KindOf(o)
	o = o.DeepCopyObject()
	o.GetObjectKind().SetGroupVersionKind(gvk)
	return o
}

func tableOf(revision string, objs ...runtime.Object) metav1.Table {
	t := metav1.Table{
		TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: revision},
		ColumnDefinitions: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name"},
			{Name: "Replicas", Type: "integer"},
			{Name: "UID", Type: "string", Priority: 1},
		},
	}
	for _, o := range objs {
		m := o.(client.Object) // every object of the model has metadata
		replicas := 0
		if rc, ok := o.(*corev1.ReplicationController); ok && rc.Spec.Replicas != nil {
			replicas = int(*rc.Spec.Replicas)
		}
		raw, _ := json.Marshal(map[string]any{"kind": "PartialObjectMetadata", "metadata": map[string]any{
			"name": m.GetName(), "namespace": m.GetNamespace(), "resourceVersion": m.GetResourceVersion(), "labels": m.GetLabels(),
		}})
		t.Rows = append(t.Rows, metav1.TableRow{
			Cells: []any{m.GetName(), replicas, string(m.GetUID())}, Object: runtime.RawExtension{Raw: raw},
		})
	}
	return t
}

func fail(rw http.ResponseWriter, err error) {
	s, ok := err.(apierrors.APIStatus) // the model returns them bare
	if !ok {
		s = apierrors.NewInternalError(err)
	}
	status := s.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	answer(rw, int(status.Code), status)
}

func answer(rw http.ResponseWriter, status int, v any) {
	if status != 0 {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(status)
	}
	_ = json.NewEncoder(rw).Encode(v)
}
