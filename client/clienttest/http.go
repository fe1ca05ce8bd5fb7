package clienttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
)

// HandlerOptions configures [Handler]. The zero value works.
type HandlerOptions struct {
	JSONOnly bool // protobuf bodies are refused with 415
}

// Handler serves what c does over HTTP, in JSON and protobuf, as apimachinery's own
// encoders write it.
func Handler(c client.Interface, opts HandlerOptions) http.Handler {
	return &handler{c, opts, serializer.NewCodecFactory(client.Scheme()).SupportedMediaTypes()}
}

type handler struct {
	client client.Interface
	opts   HandlerOptions
	media  []runtime.SerializerInfo
}

// target is what a path names.
type target struct {
	schema.GroupVersionResource
	namespace, name, subresource string
}

func parsePath(path string) (t target, ok bool) {
	if strings.Contains(path, "//") {
		return t, false // servers differ in what they make of it
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		t.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		t.Group, t.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return t, false
	}
	// /namespaces/N/finalize is a subresource, /namespaces/N/pods is a list.
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "finalize" && parts[2] != "status" {
		t.namespace, parts = parts[1], parts[2:]
	}
	parts = append(parts, "", "")
	t.Resource, t.name, t.subresource = parts[0], parts[1], parts[2]
	return t, true
}

func (h *handler) info(media string) runtime.SerializerInfo {
	if m, _, err := mime.ParseMediaType(media); err == nil {
		for _, i := range h.media {
			if i.MediaType == m {
				return i
			}
		}
	}
	return h.media[0] // JSON
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	accept, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	if h.opts.JSONOnly {
		accept = runtime.ContentTypeJSON
	}
	out := h.info(accept)
	t, ok := parsePath(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	obj, err := h.serve(w, r, t, out)
	switch {
	case err != nil:
		h.fail(w, out, err)
	case obj != nil:
		h.write(w, out, http.StatusOK, obj)
	}
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request, t target, out runtime.SerializerInfo) (runtime.Object, error) {
	ctx := r.Context()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if h.opts.JSONOnly && strings.HasPrefix(r.Header.Get("Content-Type"), runtime.ContentTypeProtobuf) {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, r.Method, t.GroupResource(), t.name, "no protobuf here", 0, false)
	}
	decode := func() (runtime.Object, error) {
		obj, _, err := h.info(r.Header.Get("Content-Type")).Serializer.Decode(body, nil, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return obj, nil
	}
	q := r.URL.Query()
	dry := q["dryRun"]
	switch r.Method {
	case http.MethodGet:
		if t.name != "" {
			return h.client.Get(ctx, t.GroupVersionResource, t.namespace, t.name, t.subresource)
		}
		var opts metav1.ListOptions
		if err := metav1.Convert_url_Values_To_v1_ListOptions(&q, &opts, nil); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if opts.Watch {
			h.watch(w, r, t, opts, out)
			return nil, nil
		}
		return h.list(r, t, opts)
	case http.MethodPost:
		obj, err := decode()
		if err != nil {
			return nil, err
		}
		return h.client.Create(ctx, t.GroupVersionResource, t.namespace, t.name, obj, metav1.CreateOptions{DryRun: dry}, t.subresource)
	case http.MethodPut:
		obj, err := decode()
		if err != nil {
			return nil, err
		}
		return h.client.Update(ctx, t.GroupVersionResource, t.namespace, t.name, obj, metav1.UpdateOptions{DryRun: dry}, t.subresource)
	case http.MethodPatch:
		return h.client.Patch(ctx, t.GroupVersionResource, t.namespace, t.name, types.PatchType(r.Header.Get("Content-Type")), body, metav1.PatchOptions{DryRun: dry}, t.subresource)
	case http.MethodDelete:
		var opts metav1.DeleteOptions
		if len(body) > 0 {
			if err := json.Unmarshal(body, &opts); err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
		}
		return &metav1.Status{Status: metav1.StatusSuccess}, h.client.Delete(ctx, t.GroupVersionResource, t.namespace, t.name, opts)
	}
	return nil, apierrors.NewMethodNotSupported(t.GroupResource(), r.Method)
}

func (h *handler) list(r *http.Request, t target, opts metav1.ListOptions) (runtime.Object, error) {
	items, listMeta, err := h.client.List(r.Context(), t.GroupVersionResource, t.namespace, opts)
	if err != nil {
		return nil, err
	}
	for _, k := range kinds() {
		if k.gvr != t.GroupVersionResource {
			continue
		}
		list, err := client.Scheme().New(k.gvk.GroupVersion().WithKind(k.gvk.Kind + "List"))
		if err != nil {
			return nil, err
		}
		if err := meta.SetList(list, items); err != nil {
			return nil, err
		}
		to, err := meta.ListAccessor(list)
		if err != nil {
			return nil, err
		}
		to.SetResourceVersion(listMeta.ResourceVersion)
		to.SetContinue(listMeta.Continue)
		to.SetRemainingItemCount(listMeta.RemainingItemCount)
		return list, nil
	}
	return nil, notServed("list", t.GroupVersionResource, "")
}

func (h *handler) watch(w http.ResponseWriter, r *http.Request, t target, opts metav1.ListOptions, out runtime.SerializerInfo) {
	stream := out.StreamSerializer
	flush := http.NewResponseController(w)
	var frames io.Writer
	send := func(kind string, obj runtime.Object) error {
		var raw bytes.Buffer
		if err := out.Serializer.Encode(typed(obj), &raw); err != nil {
			return err
		}
		var event bytes.Buffer
		if err := stream.Encode(&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: raw.Bytes()}}, &event); err != nil {
			return err
		}
		if _, err := frames.Write(event.Bytes()); err != nil {
			return err
		}
		return flush.Flush()
	}
	begin := func() error {
		if frames != nil {
			return nil
		}
		w.Header().Set("Content-Type", out.MediaType+";stream=watch")
		w.WriteHeader(http.StatusOK)
		frames = stream.NewFrameWriter(w)
		return flush.Flush()
	}
	for e, err := range h.client.Watch(r.Context(), t.GroupVersionResource, t.namespace, opts) {
		if err != nil && frames == nil {
			h.fail(w, out, err)
			return
		}
		if begin() != nil {
			return
		}
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			s := status.Status()
			_ = send("ERROR", &s) // the watch is over either way
			return
		}
		if err != nil || send(string(e.Type), e.Object) != nil {
			return
		}
	}
}

func (h *handler) fail(w http.ResponseWriter, out runtime.SerializerInfo, err error) {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	s := status.Status()
	h.write(w, out, int(s.Code), &s)
}

func (h *handler) write(w http.ResponseWriter, out runtime.SerializerInfo, code int, obj runtime.Object) {
	var body bytes.Buffer
	if err := out.Serializer.Encode(typed(obj), &body); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", out.MediaType)
	w.WriteHeader(code)
	_, _ = w.Write(body.Bytes()) // the client has gone if it fails
}

// typed returns obj with its kind.
func typed(obj runtime.Object) runtime.Object {
	if gvk := client.KindOf(obj); obj.GetObjectKind().GroupVersionKind() != gvk {
		obj = obj.DeepCopyObject()
		obj.GetObjectKind().SetGroupVersionKind(gvk)
	}
	return obj
}
