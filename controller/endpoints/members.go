package endpoints

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
)

// members knows which pods each service selects, so that a change of a pod costs what it
// has services, and a look at a service what it has pods, however many others there are.
type members struct {
	services *cache.Cache[*corev1.Service]
	pods     *cache.Cache[*corev1.Pod]

	mu    sync.Mutex
	built bool                                   // guarded by mu
	of    map[controller.Key]map[string]struct{} // guarded by mu; names of pods
}

// bySelector is the index of services by one pair of their selectors.
const bySelector = "selector"

// selectorOf returns what a service is found by: one pair is enough, and has to be the
// same one each time.
func selectorOf(svc *corev1.Service) []string {
	if !selecting(svc) {
		return nil
	}
	key := slices.Min(slices.Collect(maps.Keys(svc.Spec.Selector)))
	return []string{pair(svc.Namespace, key, svc.Spec.Selector[key])}
}

func pair(namespace, key, value string) string { return namespace + "/" + key + "=" + value }

// selecting reports whether a service has a selector that counts.
func selecting(svc *corev1.Service) bool {
	return len(svc.Spec.Selector) > 0 && svc.Spec.Type != corev1.ServiceTypeExternalName
}

// servicesFor returns the services that select pods with these labels.
func (m *members) servicesFor(namespace string, labels map[string]string) (all []*corev1.Service) {
	for key, value := range labels {
		for _, svc := range m.services.ByIndex(bySelector, pair(namespace, key, value)) {
			if selects(svc, labels) {
				all = append(all, svc)
			}
		}
	}
	return all
}

// podChanged notes a change of a pod; a side may be nil. It must be told of each after the
// cache shows it.
func (m *members) podChanged(before, after *corev1.Pod) {
	if before != nil && after != nil && maps.Equal(before.Labels, after.Labels) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.built {
		return
	}
	if before != nil {
		for _, svc := range m.servicesFor(before.Namespace, before.Labels) {
			delete(m.of[controller.KeyOf(svc)], before.Name)
		}
	}
	if after != nil {
		m.add(after)
	}
}

// add notes a pod with the services that select it. mu is held.
func (m *members) add(pod *corev1.Pod) {
	for _, svc := range m.servicesFor(pod.Namespace, pod.Labels) {
		key := controller.KeyOf(svc)
		if m.of[key] == nil {
			m.of[key] = map[string]struct{}{}
		}
		m.of[key][pod.Name] = struct{}{}
	}
}

// serviceChanged notes a change of a service; a side may be nil. It must be told of each
// after the cache shows it.
func (m *members) serviceChanged(before, after *corev1.Service) {
	if before != nil && after != nil && before.Spec.Type == after.Spec.Type && maps.Equal(before.Spec.Selector, after.Spec.Selector) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.built {
		return
	}
	delete(m.of, controller.KeyOfEither(before, after))
	if after == nil || !selecting(after) {
		return
	}
	names := map[string]struct{}{}
	for _, pod := range m.pods.List(after.Namespace) {
		if selects(after, pod.Labels) {
			names[pod.Name] = struct{}{}
		}
	}
	if len(names) > 0 {
		m.of[controller.KeyOf(after)] = names
	}
}

// podsOf returns the pods that a service selects. Both caches must be ready.
func (m *members) podsOf(svc *corev1.Service) []*corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.built {
		// Pods and services come in any order at the start: all of them at once cost
		// less than each when it comes.
		m.built, m.of = true, map[controller.Key]map[string]struct{}{}
		for _, pod := range m.pods.List("") {
			m.add(pod)
		}
	}
	names := m.of[controller.KeyOf(svc)]
	pods := make([]*corev1.Pod, 0, len(names))
	for name := range names {
		if pod, ok := m.pods.Get(svc.Namespace, name); ok && selects(svc, pod.Labels) {
			pods = append(pods, pod)
		}
	}
	return pods
}
