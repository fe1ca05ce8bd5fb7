package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Users of the kubelet API that need no permission: the API server under its own name, and administrators. All others need
// one for a subresource of the node, about which the agent asks the API server.
const (
	apiServerName = "kube-apiserver-kubelet-client"
	adminGroup    = "system:masters"
)

// The API server is asked again about a token and about a permission after these times, which are those of upstream's kubelet.
const (
	tokenTime   = 2 * time.Minute
	allowedTime = 5 * time.Minute
	refusedTime = 30 * time.Second
)

// maxAnswers bounds the answers of the API server that are kept.
const maxAnswers = 1000

// An answers keeps answers of the API server for a time.
type answers[K comparable, V any] struct {
	mu   sync.Mutex
	kept map[K]kept[V] // guarded by mu
}

type kept[V any] struct {
	value V
	until time.Time
}

func (a *answers[K, V]) get(key K) (value V, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k, ok := a.kept[key]
	return k.value, ok && time.Now().Before(k.until)
}

func (a *answers[K, V]) put(key K, value V, d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if len(a.kept) >= maxAnswers {
		maps.DeleteFunc(a.kept, func(_ K, k kept[V]) bool { return !now.Before(k.until) })
	}
	if len(a.kept) >= maxAnswers {
		clear(a.kept)
	}
	if a.kept == nil {
		a.kept = map[K]kept[V]{}
	}
	a.kept[key] = kept[V]{value, now.Add(d)}
}

// A question is one for a permission on the node.
type question struct{ user, groups, verb, subresource string }

// access decides on the requests to the kubelet API.
type access struct {
	tokens      answers[[sha256.Size]byte, *authenticationv1.UserInfo]
	permissions answers[question, bool]
}

// errUnauthorized is that a request has no valid credential.
var errUnauthorized = errors.New("no valid client certificate or token")

// fromAPIServer is the key of contexts of requests that come from the API server in the same process.
type fromAPIServer struct{}

// user returns the user of a request: the API server in the same process, that of its client certificate, which was verified in the handshake, or of its token.
func (k *Server) user(r *http.Request) (*authenticationv1.UserInfo, error) {
	if r.Context().Value(fromAPIServer{}) != nil {
		return &authenticationv1.UserInfo{Username: apiServerName, Groups: []string{"system:authenticated"}}, nil
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		who := r.TLS.PeerCertificates[0].Subject
		return &authenticationv1.UserInfo{Username: who.CommonName, Groups: append(slices.Clone(who.Organization), "system:authenticated")}, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, errUnauthorized
	}
	key := sha256.Sum256([]byte(token))
	if u, ok := k.access.tokens.get(key); ok {
		return u, nil
	}
	review, err := ask(r.Context(), k, "tokenreviews", authenticationv1.SchemeGroupVersion, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}})
	if err != nil {
		return nil, err
	}
	if !review.Status.Authenticated {
		return nil, errUnauthorized
	}
	k.access.tokens.put(key, &review.Status.User, tokenTime)
	return &review.Status.User, nil
}

// ask has the API server answer a review.
func ask[T runtime.Object](ctx context.Context, k *Server, resource string, gv schema.GroupVersion, review T) (T, error) {
	obj, err := k.opts.Client.Create(ctx, gv.WithResource(resource), "", "", review, metav1.CreateOptions{}, "")
	if err != nil {
		return review, err
	}
	answered, ok := obj.(T)
	if !ok {
		return review, fmt.Errorf("the API server answers a %T with a %T", review, obj)
	}
	return answered, nil
}

// may reports whether a user has a permission on the node.
func (k *Server) may(ctx context.Context, u *authenticationv1.UserInfo, verb, subresource string) (bool, error) {
	if u.Username == apiServerName || slices.Contains(u.Groups, adminGroup) {
		return true, nil
	}
	q := question{u.Username, strings.Join(u.Groups, "\x00"), verb, subresource}
	if len(u.Extra) == 0 {
		if allowed, ok := k.access.permissions.get(q); ok {
			return allowed, nil
		}
	}
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: u.Username, UID: u.UID, Groups: u.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: k.opts.Name},
	}
	for name, values := range u.Extra {
		spec.Extra[name] = authorizationv1.ExtraValue(values)
	}
	review, err := ask(ctx, k, "subjectaccessreviews", authorizationv1.SchemeGroupVersion, &authorizationv1.SubjectAccessReview{Spec: spec})
	if err != nil {
		return false, err
	}
	if len(u.Extra) == 0 {
		d := refusedTime
		if review.Status.Allowed {
			d = allowedTime
		}
		k.access.permissions.put(q, review.Status.Allowed, d)
	}
	return review.Status.Allowed, nil
}

// verbOf returns the verb of an HTTP method, as permissions name it.
func verbOf(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

// subresources returns the subresources of the node of which a user needs one for a path, as in upstream's kubelet.
func subresources(path string) []string {
	below := func(top string) bool { return path == top || strings.HasPrefix(path, top+"/") }
	switch {
	case below("/stats"):
		return []string{"stats"}
	case below("/metrics"):
		return []string{"metrics"}
	case below("/logs"):
		return []string{"log"}
	case below("/checkpoint"):
		return []string{"checkpoint"}
	case below("/statusz"):
		return []string{"statusz"}
	case below("/flagz"):
		return []string{"configz"}
	case below("/configz"):
		return []string{"configz", "proxy"}
	case below("/pods"), below("/runningpods"):
		return []string{"pods", "proxy"}
	case below("/healthz"):
		return []string{"healthz", "proxy"}
	}
	return []string{"proxy"}
}

// authorized passes on only requests of users that may make them.
func (k *Server) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, err := k.user(r)
		switch {
		case errors.Is(err, errUnauthorized):
			w.Header().Set("Connection", "close") // do not keep connections of unauthenticated clients
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		case err != nil:
			k.opts.Log.Warn("a token could not be checked", "err", err)
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		verb, subs := verbOf(r.Method), subresources(r.URL.Path)
		for _, sub := range subs {
			allowed, err := k.may(r.Context(), u, verb, sub)
			if err != nil {
				k.opts.Log.Warn("a permission could not be checked", "user", u.Username, "err", err)
				http.Error(w, fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", u.Username, verb, subs), http.StatusInternalServerError)
				return
			}
			if allowed {
				next.ServeHTTP(w, r)
				return
			}
		}
		http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", u.Username, verb, subs), http.StatusForbidden)
	})
}
