package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// A standIn is an API server that stores objects of any kind in memory without validation
// and without authentication. It is for objects that a real server rejects, such as
// EndpointSlices that lead to loopback, and for Services of both families.
type standIn struct {
	http *http.Server

	mu      sync.Mutex
	rev     int                                   // guarded by mu
	objects map[string]*unstructured.Unstructured // guarded by mu; by path
	history []told                                // guarded by mu
	more    chan struct{}                         // guarded by mu; closed with the next change
}

type told struct {
	kind       string // as in a watch
	collection string // the path of all of that kind
	object     *unstructured.Unstructured
	rev        int
}

func newStandIn(l net.Listener) *standIn {
	s := &standIn{objects: map[string]*unstructured.Unstructured{}, more: make(chan struct{})}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.http.Serve(l) }()
	return s
}

func (s *standIn) Close() { _ = s.http.Close() }

// A place is what a path of the API names.
type place struct{ collection, namespace, name, subresource string }

func parsePath(path string) (p place) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	root := 2 // api/v1
	if parts[0] == "apis" {
		root = 3
	}
	if len(parts) <= root {
		return place{}
	}
	prefix, parts := strings.Join(parts[:root], "/"), parts[root:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		p.namespace, parts = parts[1], parts[2:]
	}
	p.collection = prefix + "/" + parts[0]
	if len(parts) > 1 {
		p.name = parts[1]
	}
	if len(parts) > 2 {
		p.subresource = parts[2]
	}
	return p
}

func (p place) key() string { return p.collection + " " + p.namespace + "/" + p.name }

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := parsePath(r.URL.Path)
	if p.collection == "" {
		refuse(w, http.StatusNotFound, "NotFound")
		return
	}
	switch {
	case r.Method == http.MethodGet && p.name != "":
		s.mu.Lock()
		o := s.objects[p.key()]
		s.mu.Unlock()
		if o == nil {
			refuse(w, http.StatusNotFound, "NotFound")
			return
		}
		answer(w, http.StatusOK, o)
	case r.Method == http.MethodGet:
		s.list(w, r, p)
	case r.Method == http.MethodPost, r.Method == http.MethodPut:
		if r.Header.Get("Content-Type") != "application/json" {
			refuse(w, http.StatusUnsupportedMediaType, "UnsupportedMediaType")
			return
		}
		o := &unstructured.Unstructured{}
		if err := json.NewDecoder(r.Body).Decode(&o.Object); err != nil {
			refuse(w, http.StatusBadRequest, "BadRequest")
			return
		}
		s.write(w, r.Method, p, o)
	case r.Method == http.MethodDelete && p.name != "":
		s.mu.Lock()
		defer s.mu.Unlock()
		o := s.objects[p.key()]
		if o == nil {
			refuse(w, http.StatusNotFound, "NotFound")
			return
		}
		delete(s.objects, p.key())
		s.note("DELETED", p, o.DeepCopy())
		answer(w, http.StatusOK, o)
	default:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

func answer(w http.ResponseWriter, code int, o any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o)
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "the stand-in says: " + string(reason),
	})
}

// note gives an object the next revision and notifies watchers. s.mu is held.
func (s *standIn) note(kind string, p place, o *unstructured.Unstructured) {
	s.rev++
	o.SetResourceVersion(strconv.Itoa(s.rev))
	s.history = append(s.history, told{kind, p.collection, o, s.rev})
	close(s.more)
	s.more = make(chan struct{})
}

func (s *standIn) write(w http.ResponseWriter, method string, p place, o *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.GetName() == "" {
		o.SetName(fmt.Sprintf("%s%d", o.GetGenerateName(), s.rev))
	}
	o.SetNamespace(p.namespace)
	p.name = o.GetName()
	old := s.objects[p.key()]
	kind := "MODIFIED"
	switch {
	case method == http.MethodPost && old != nil:
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
		return
	case method == http.MethodPost:
		kind = "ADDED"
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", s.rev)))
		o.SetCreationTimestamp(metav1.Now())
	case old == nil:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	case o.GetResourceVersion() != "" && o.GetResourceVersion() != old.GetResourceVersion():
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
		return
	}
	s.objects[p.key()] = o
	s.note(kind, p, o)
	answer(w, http.StatusOK, o)
}

// list answers a list or a watch.
func (s *standIn) list(w http.ResponseWriter, r *http.Request, p place) {
	q := r.URL.Query()
	selector, err := labels.Parse(q.Get("labelSelector"))
	names, err2 := fields.ParseSelector(q.Get("fieldSelector"))
	if err != nil || err2 != nil || q.Get("sendInitialEvents") == "true" {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	wanted := func(o *unstructured.Unstructured) bool {
		return (p.namespace == "" || o.GetNamespace() == p.namespace) && selector.Matches(labels.Set(o.GetLabels())) &&
			names.Matches(fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()})
	}
	if q.Get("watch") == "true" || q.Get("watch") == "1" {
		s.watch(w, r, p.collection, wanted)
		return
	}
	s.mu.Lock()
	list := &unstructured.UnstructuredList{Object: map[string]any{"kind": "List", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.rev)}}}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if o := s.objects[key]; strings.HasPrefix(key, p.collection+" ") && wanted(o) {
			list.Items = append(list.Items, *o)
			list.SetKind(o.GetKind() + "List")
			list.SetAPIVersion(o.GetAPIVersion())
		}
	}
	s.mu.Unlock()
	b, err := list.MarshalJSON()
	if err != nil {
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

func (s *standIn) watch(w http.ResponseWriter, r *http.Request, collection string, wanted func(*unstructured.Unstructured) bool) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	to := json.NewEncoder(w)
	for at := 0; ; {
		w.(http.Flusher).Flush()
		s.mu.Lock()
		news, more := s.history[at:], s.more
		at = len(s.history)
		s.mu.Unlock()
		for _, c := range news {
			if c.rev > from && c.collection == collection && wanted(c.object) {
				if to.Encode(map[string]any{"type": c.kind, "object": c.object}) != nil {
					return
				}
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}
