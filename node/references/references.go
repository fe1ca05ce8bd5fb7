package references

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/lifecycle"
)

// A Reference names a config map or a secret.
type Reference struct {
	Secret bool
	types.NamespacedName
}

// shared is a cache that runs while a pod of the node needs it.
type shared[T client.Object] struct {
	cache  *cache.Cache[T]
	users  []types.UID // pods; guarded by Set.mu
	cancel context.CancelFunc
}

// hold counts a pod of the node, and starts a cache for the first one. The caller holds r.mu.
func (s *shared[T]) hold(r *Set, pod *corev1.Pod, of func(node string) *cache.Cache[T]) *shared[T] {
	if s == nil {
		s = &shared[T]{cache: of(pod.Spec.NodeName), cancel: func() {}}
		s.cache.Subscribe(func(_, _ T) {
			r.mu.Lock()
			users := slices.Clone(s.users)
			r.mu.Unlock()
			r.changed(users)
		})
		if r.start != nil {
			s.cancel = r.start(s.cache.Run)
		}
	}
	if !slices.Contains(s.users, pod.UID) {
		s.users = append(s.users, pod.UID)
	}
	return s
}

// release ends the count of a pod, and returns nil after the last one. The caller holds Set.mu.
func (s *shared[T]) release(pod types.UID) *shared[T] {
	if s == nil {
		return nil
	}
	s.users = slices.DeleteFunc(s.users, func(uid types.UID) bool { return uid == pod })
	if len(s.users) > 0 {
		return s
	}
	s.cancel()
	return nil
}

// complete returns the cache when it has all objects.
func (s *shared[T]) complete(ctx context.Context, kinds string) (*cache.Cache[T], error) {
	if s == nil {
		return nil, fmt.Errorf("%s are not followed", kinds)
	}
	select {
	case <-s.cache.Ready():
		return s.cache, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", kinds, context.Cause(ctx))
	}
}

// Set watches the ConfigMaps and Secrets that the node's pods name, each with a
// separate watch, because a node may not read others.
type Set struct {
	client  client.Interface
	log     *slog.Logger
	changed func(pods []types.UID)
	running chan struct{} // closed when Run has begun

	mu    sync.Mutex
	start func(work func(ctx context.Context) error) context.CancelFunc // guarded by mu; nil outside of Run
	held  map[Reference]*follow                                         // guarded by mu

	// These are nil while no pod needs them.
	trust    *shared[*certificatesv1.ClusterTrustBundle]    // guarded by mu
	requests *shared[*certificatesv1.PodCertificateRequest] // guarded by mu; those of the node
}

// follow is one object that is being followed.
type follow struct {
	users  []types.UID // pods; guarded by Set.mu
	cancel context.CancelFunc
	// Exactly one of these is set.
	configMaps *cache.Cache[*corev1.ConfigMap]
	secrets    *cache.Cache[*corev1.Secret]
}

func New(c client.Interface, log *slog.Logger, changed func([]types.UID)) *Set {
	return &Set{client: c, log: log, changed: changed, running: make(chan struct{}), held: map[Reference]*follow{}}
}

// Run watches until ctx is cancelled.
func (r *Set) Run(ctx context.Context) error {
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	r.mu.Lock()
	r.start = func(work func(ctx context.Context) error) context.CancelFunc {
		ctx, cancel := context.WithCancel(ctx)
		g.Go(func(context.Context) { _ = work(ctx) }) // a cache runs until ctx is cancelled
		return cancel
	}
	r.mu.Unlock()
	close(r.running)
	<-ctx.Done()
	r.mu.Lock()
	r.start = nil // no Go concurrently with Stop
	r.mu.Unlock()
	return nil
}

// Hold starts watching the objects that the pod names. It is called again with later versions of the pod, which may name more: those
// of new ephemeral containers.
func (r *Set) Hold(pod *corev1.Pod) {
	<-r.running
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ref := range Named(pod) {
		f := r.held[ref]
		if f == nil {
			f = r.follow(ref)
			r.held[ref] = f
		}
		if !slices.Contains(f.users, pod.UID) {
			f.users = append(f.users, pod.UID)
		}
	}
	if trusts(pod) {
		r.trust = r.trust.hold(r, pod, r.bundles)
	}
	if Certified(pod) {
		r.requests = r.requests.hold(r, pod, r.requestsOf)
	}
}

// Release ends watching the objects that no other pod names.
func (r *Set) Release(pod types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trust, r.requests = r.trust.release(pod), r.requests.release(pod)
	for ref, f := range r.held {
		f.users = slices.DeleteFunc(f.users, func(uid types.UID) bool { return uid == pod })
		if len(f.users) == 0 {
			f.cancel()
			delete(r.held, ref)
		}
	}
}

// follow starts to follow one object. The caller holds mu.
func (r *Set) follow(ref Reference) *follow {
	f := &follow{cancel: func() {}}
	tell := func() {
		r.mu.Lock()
		users := slices.Clone(f.users)
		r.mu.Unlock()
		r.changed(users)
	}
	var work func(ctx context.Context) error
	name := "metadata.name=" + ref.Name
	if ref.Secret {
		f.secrets = cache.New(r.client, client.Secrets, cache.Options[*corev1.Secret]{Namespace: ref.Namespace, FieldSelector: name, Log: r.log})
		f.secrets.Subscribe(func(_, _ *corev1.Secret) { tell() })
		work = f.secrets.Run
	} else {
		f.configMaps = cache.New(r.client, client.ConfigMaps, cache.Options[*corev1.ConfigMap]{Namespace: ref.Namespace, FieldSelector: name, Log: r.log})
		f.configMaps.Subscribe(func(_, _ *corev1.ConfigMap) { tell() })
		work = f.configMaps.Run
	}
	if r.start != nil {
		f.cancel = r.start(work)
	}
	return f
}

// Objects reads watched objects; it waits until their first list has succeeded.
type Objects struct {
	ctx context.Context //nolint:containedctx // lives for one call of package crispec or volumes, whose lookups have no context
	r   *Set
}

// At returns a reader of the objects whose lookups end with ctx.
func (r *Set) At(ctx context.Context) Objects { return Objects{ctx, r} }

func (o Objects) find(ref Reference) *follow {
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	return o.r.held[ref]
}

// ConfigMap returns the config map of that name.
func (o Objects) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	f := o.find(Reference{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	if f == nil {
		return nil, fmt.Errorf("configmap %q is not followed", name)
	}
	select {
	case <-f.configMaps.Ready():
	case <-o.ctx.Done():
		return nil, fmt.Errorf("configmap %q: %w", name, context.Cause(o.ctx))
	}
	if m, ok := f.configMaps.Get(namespace, name); ok {
		return m, nil
	}
	return nil, fmt.Errorf("configmap %q not found", name)
}

// Secret returns the secret of that name.
func (o Objects) Secret(namespace, name string) (*corev1.Secret, error) {
	f := o.find(Reference{true, types.NamespacedName{Namespace: namespace, Name: name}})
	if f == nil {
		return nil, fmt.Errorf("secret %q is not followed", name)
	}
	select {
	case <-f.secrets.Ready():
	case <-o.ctx.Done():
		return nil, fmt.Errorf("secret %q: %w", name, context.Cause(o.ctx))
	}
	if s, ok := f.secrets.Get(namespace, name); ok {
		return s, nil
	}
	return nil, fmt.Errorf("secret %q not found", name)
}

// Certified reports whether a volume of the pod has a certificate in it.
func Certified(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil &&
			slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.PodCertificate != nil })
	})
}

// requestsOf returns a cache of the certificate requests of a node.
func (r *Set) requestsOf(node string) *cache.Cache[*certificatesv1.PodCertificateRequest] {
	return cache.New(r.client, client.PodCertificateRequests, cache.Options[*certificatesv1.PodCertificateRequest]{
		FieldSelector: "spec.nodeName=" + node, Log: r.log,
	})
}

// CertificateRequests returns the cache of the node's certificate requests when it is complete.
func (r *Set) CertificateRequests(ctx context.Context) (*cache.Cache[*certificatesv1.PodCertificateRequest], error) {
	r.mu.Lock()
	s := r.requests
	r.mu.Unlock()
	return s.complete(ctx, "PodCertificateRequests")
}

// mostReferences is how many ConfigMaps and Secrets one pod of a node can name. The agent watches each, which takes a
// connection's worth of memory: a pod can name 30,000.
const mostReferences = 1000

// TooMany returns why a pod names more objects than the agent can watch, or nil.
func TooMany(pod *corev1.Pod) *lifecycle.Rejection {
	n := len(Named(pod))
	if n <= mostReferences {
		return nil
	}
	return &lifecycle.Rejection{
		Reason: "TooManyReferences", Message: fmt.Sprintf("spec: the pod names %d ConfigMaps and Secrets, which are more than a node watches for one pod, want at most %d", n, mostReferences),
	}
}

// Named returns the config maps and secrets that the pod names, each once.
func Named(pod *corev1.Pod) []Reference {
	var list []Reference
	seen := map[Reference]bool{}
	add := func(secret bool, name string) {
		ref := Reference{secret, types.NamespacedName{Namespace: pod.Namespace, Name: name}}
		if name != "" && !seen[ref] {
			seen[ref], list = true, append(list, ref)
		}
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.ConfigMap != nil {
			add(false, v.ConfigMap.Name)
		}
		if v.Secret != nil {
			add(true, v.Secret.SecretName)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				add(false, s.ConfigMap.Name)
			}
			if s.Secret != nil {
				add(true, s.Secret.Name)
			}
		}
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		add(true, s.Name)
	}
	env := func(sources []corev1.EnvFromSource, vars []corev1.EnvVar) {
		for _, from := range sources {
			if from.ConfigMapRef != nil {
				add(false, from.ConfigMapRef.Name)
			}
			if from.SecretRef != nil {
				add(true, from.SecretRef.Name)
			}
		}
		for _, e := range vars {
			if e.ValueFrom == nil {
				continue
			}
			if e.ValueFrom.ConfigMapKeyRef != nil {
				add(false, e.ValueFrom.ConfigMapKeyRef.Name)
			}
			if e.ValueFrom.SecretKeyRef != nil {
				add(true, e.ValueFrom.SecretKeyRef.Name)
			}
		}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			env(containers[i].EnvFrom, containers[i].Env)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		env(pod.Spec.EphemeralContainers[i].EnvFrom, pod.Spec.EphemeralContainers[i].Env)
	}
	return list
}
