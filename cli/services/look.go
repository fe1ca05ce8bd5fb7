package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/trace"
)

// A looker gathers the inputs of a trace.
type looker struct {
	server    *client.REST
	namespace string

	nodes []*corev1.Node
}

// look asks the server, and the agent of the node whose rules count.
func (l *looker) look(ctx context.Context, t trace.Target, from, fromNode string) (*trace.World, error) {
	w := &trace.World{Target: t}
	var err error
	if l.nodes, _, err = client.Nodes.List(ctx, l.server, "", metav1.ListOptions{}); err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	if err := l.service(ctx, w); err != nil {
		return nil, err
	}
	name := types.NamespacedName{Namespace: w.Service.Namespace, Name: w.Service.Name}
	w.Slices, _, err = client.EndpointSlices.List(ctx, l.server, name.Namespace, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name.Name})
	if err != nil {
		return nil, err
	}
	if w.Pods, _, err = client.Pods.List(ctx, l.server, name.Namespace, metav1.ListOptions{}); err != nil {
		w.NoPods = err.Error()
	} else if w.Warnings, _, err = client.Events.List(ctx, l.server, name.Namespace, metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning}); err != nil {
		w.Warnings = nil // they merely explain
	}
	pod, err := l.client(ctx, w, from, fromNode)
	if err != nil {
		return nil, err
	}
	return w, l.ask(ctx, w, name, pod)
}

// service finds the Service that is meant.
func (l *looker) service(ctx context.Context, w *trace.World) error {
	t := w.Target
	if t.Name == "" {
		all, _, err := client.Services.List(ctx, l.server, "", metav1.ListOptions{})
		if err != nil {
			return err
		}
		// Only look for a pod if no Service and no node has the address.
		pods, _, err := client.Pods.List(ctx, l.server, "", metav1.ListOptions{FieldSelector: "status.podIP=" + t.Address.String()})
		if err != nil {
			pods = nil
		}
		w.Service, w.Others, err = trace.Find(t, all, l.nodes, pods)
		return err
	}
	namespace := cmp.Or(t.Namespace, l.namespace)
	var err error
	w.Service, err = client.Services.Get(ctx, l.server, namespace, t.Name)
	if !apierrors.IsNotFound(err) {
		return err
	}
	e := &trace.NotFoundError{What: fmt.Sprintf("services %s/%s not found", namespace, t.Name)}
	for _, in := range []string{"", namespace} { // a user without permission for all namespaces may have it for one
		all, _, err := client.Services.List(ctx, l.server, in, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for _, s := range all {
			if s.Name == t.Name || s.Namespace == namespace && resource.Alike(s.Name, t.Name) {
				e.Near = append(e.Near, s.Namespace+"/"+s.Name)
			}
		}
		break
	}
	const few = 5
	e.Near = e.Near[:min(few, len(e.Near))]
	return e
}

// client finds out where connections come from, and the node with the rules for them. It returns the pod, if
// they come from one.
func (l *looker) client(ctx context.Context, w *trace.World, from, fromNode string) (types.NamespacedName, error) {
	var pod types.NamespacedName
	at := trace.NodeOf(w.Target.Address, l.nodes) // a node port is at its node
	switch {
	case from != "":
		p, err := l.pod(ctx, from)
		if err != nil {
			return pod, err
		}
		if w.Target.Address.IsLoopback() && !p.Spec.HostNetwork {
			return pod, fmt.Errorf("--from: %s is the loopback address of pod %s/%s, not a Service", w.Target.Address, p.Namespace, p.Name)
		}
		pod = types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		w.Client = trace.Client{Node: p.Spec.NodeName, Namespace: p.Namespace, Pod: p.Name, Host: p.Spec.HostNetwork}
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				w.Client.Addresses = append(w.Client.Addresses, a)
			}
		}
	case fromNode != "":
		switch _, err := client.Nodes.Get(ctx, l.server, "", fromNode); {
		case apierrors.IsNotFound(err):
			return pod, fmt.Errorf("--from-node: node %q not found", fromNode)
		case err != nil:
			return pod, fmt.Errorf("--from-node: %w", err)
		}
		w.Client = trace.Client{Node: fromNode}
	case at != nil:
		w.Client = trace.Client{Node: at.Name}
	default:
		w.Client = trace.Client{Node: l.anyNode()}
	}
	w.Here = proxy.Here{Node: w.Client.Node}
	if at != nil {
		w.Here.Node = at.Name
	}
	for _, n := range l.nodes {
		if n.Name == w.Here.Node {
			w.Here.Zone = n.Labels[corev1.LabelTopologyZone]
			for _, a := range n.Status.Addresses {
				if ip, err := netip.ParseAddr(a.Address); err == nil {
					w.Here.Addresses = append(w.Here.Addresses, ip)
				}
			}
		}
	}
	return pod, nil
}

// pod returns the pod of --from.
func (l *looker) pod(ctx context.Context, from string) (*corev1.Pod, error) {
	namespace, name, has := strings.Cut(from, "/")
	switch {
	case !has:
		namespace, name = l.namespace, from
	case slices.Contains([]string{"pod", "pods", "po"}, namespace):
		namespace = l.namespace
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("--from %q: want the name of a pod, or NAMESPACE/NAME", from)
	}
	p, err := client.Pods.Get(ctx, l.server, namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("--from: pod %s/%s not found", namespace, name)
	case err != nil:
		return nil, fmt.Errorf("--from: %w", err)
	case p.Spec.NodeName == "":
		return nil, fmt.Errorf("--from: pod %s/%s is not scheduled yet and cannot connect", namespace, name)
	case podstate.Finished(p), len(p.Status.PodIPs) == 0:
		return nil, fmt.Errorf("--from: pod %s/%s is %s, has no network and cannot connect", namespace, name, cmp.Or(p.Status.Phase, corev1.PodPending))
	}
	return p, nil
}

// anyNode returns the name of a ready node, or of any node if none is ready; the first by name.
func (l *looker) anyNode() string {
	best, ready := "", false
	for _, n := range l.nodes {
		r := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if best == "" || r && !ready || r == ready && n.Name < best {
			best, ready = n.Name, r
		}
	}
	return best
}

// ask asks the agent of the node whose rules count.
func (l *looker) ask(ctx context.Context, w *trace.World, service, pod types.NamespacedName) error {
	node := w.Here.Node
	if node == "" {
		w.Unseen = "no node to test from was found"
		return nil
	}
	q := trace.Question{Service: service, Target: w.Target, From: pod}
	if node != w.Client.Node {
		q.From = types.NamespacedName{} // it is not there
		w.Elsewhere = node
	}
	body, err := l.server.Stream(ctx, http.MethodGet, "/api/v1/nodes/"+node+"/proxy"+trace.AgentPath, q.Query(), nil)
	var status apierrors.APIStatus
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return err
	case apierrors.IsInvalid(err):
		return err // as the agent says it
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		w.Unseen = fmt.Sprintf("node %s does not run Sampan's agent and service proxy", node)
		return nil
	case errors.As(err, &status):
		w.Unseen = status.Status().Message
		return nil
	default:
		return err
	}
	defer body.Close()
	s, err := trace.ReadNodeReport(body)
	if err != nil {
		w.Unseen = err.Error() // whatever answers there, it is not our agent
		return nil
	}
	w.Report, w.Here = s, s.Here
	return nil
}
