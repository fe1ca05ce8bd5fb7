package nodes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/plural"
	"github.com/sampan-io/sampan/internal/run"
)

// evict asks the server to evict exactly this pod, or to delete it.
func (d *drain) evict(ctx context.Context, c client.Interface, p *corev1.Pod) error {
	o := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID)), DryRun: d.dryRun.Option()}
	if d.grace >= 0 {
		o.GracePeriodSeconds = &d.grace
	}
	if d.disableEviction {
		return client.Pods.Delete(ctx, c, p.Namespace, p.Name, o)
	}
	_, err := c.Create(ctx, client.Pods.GroupVersionResource, p.Namespace, p.Name, &policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &o,
	}, metav1.CreateOptions{DryRun: d.dryRun.Option()}, "eviction")
	return err
}

// whyNotEvicted returns the server's message, and the causes that kubectl leaves out.
func whyNotEvicted(err error) string {
	text := strings.TrimSpace(err.Error())
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			if c.Message != "" && !strings.Contains(text, c.Message) {
				text += " " + c.Message
			}
		}
	}
	return text
}

// A passenger is a pod on its way out.
type passenger struct {
	pod   *corev1.Pod
	asked bool      // its end was accepted
	why   string    // it was refused
	again time.Time // when to ask again if nothing happens; zero: not
}

// A clearing is the way of a node to be empty.
type clearing struct {
	*drain
	client  client.Interface
	pods    *cache.Cache[*corev1.Pod]
	changes run.Bell
	blind   bool // budgets may not be read
	aboard  []*passenger
}

// blindPause is after what time a refused eviction is tried again if nothing will
// say that it has become possible.
const blindPause = 5 * time.Second

// clear evicts the pods and waits until they are gone.
func (d *drain) clear(ctx, limited context.Context, c client.Interface, node string, pods []*corev1.Pod) error {
	if len(pods) == 0 {
		return nil
	}
	cl := &clearing{drain: d, client: c, changes: run.NewBell()}
	for _, p := range pods {
		cl.aboard = append(cl.aboard, &passenger{pod: p, asked: p.DeletionTimestamp != nil})
	}
	note := func() {
		cl.changes.Ring()
	}
	cl.pods = cache.New(c, client.Pods, cache.Options[*corev1.Pod]{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	cl.pods.Subscribe(func(_, _ *corev1.Pod) { note() })
	budgets := cache.New(c, client.PodDisruptionBudgets, cache.Options[*policyv1.PodDisruptionBudget]{})
	budgets.Subscribe(func(_, _ *policyv1.PodDisruptionBudget) { note() })
	_, _, err := client.PodDisruptionBudgets.List(limited, c, "", metav1.ListOptions{Limit: 1})
	if cl.blind = err != nil; limited.Err() != nil {
		return d.ended(ctx, limited, err)
	}

	g := run.NewGroup(limited, 0)
	defer g.Stop()
	follow := func(f func(context.Context) error) {
		g.Go(func(ctx context.Context) { _ = f(ctx) }) // a cache ends with its context
	}
	follow(cl.pods.Run)
	caches := []<-chan struct{}{cl.pods.Ready()}
	if !cl.blind && !d.disableEviction {
		follow(budgets.Run)
		caches = append(caches, budgets.Ready())
	}
	for _, ready := range caches {
		select {
		case <-ready:
		case <-limited.Done():
		}
	}
	return cl.run(ctx, limited)
}

func (c *clearing) run(ctx, limited context.Context) error {
	var errs []error
	for limited.Err() == nil {
		var left []*passenger
		for _, p := range c.aboard {
			here, err := c.move(limited, p)
			switch {
			case limited.Err() != nil:
				here = true
			case err != nil:
				errs = append(errs, err)
			}
			if here {
				left = append(left, p)
			}
		}
		if c.aboard = left; len(left) == 0 {
			return errors.Join(errs...)
		}
		c.pause(limited)
	}
	if ctx.Err() != nil {
		c.detached()
		return exit.With(exit.Interrupted, nil)
	}
	many := plural.Count(len(c.aboard), "pod") + plural.Choose(len(c.aboard), " is", " are")
	errs = append(errs, fmt.Errorf("timed out after %v: %s not deleted yet", c.timeout, many))
	for _, p := range c.aboard {
		errs = append(errs, fmt.Errorf("pod %s: %s", nameOf(p.pod), p.reason()))
	}
	return exit.With(exit.TimedOut, errors.Join(errs...))
}

// pause waits until something has happened, or the next retry is due.
func (c *clearing) pause(ctx context.Context) {
	var alarm <-chan time.Time
	var first time.Time
	for _, p := range c.aboard {
		if !p.again.IsZero() && (first.IsZero() || p.again.Before(first)) {
			first = p.again
		}
	}
	if !first.IsZero() {
		t := time.NewTimer(time.Until(first))
		defer t.Stop()
		alarm = t.C
	}
	select {
	case <-c.changes:
	case <-alarm:
	case <-ctx.Done():
	}
}

// move evicts a pod if possible, and reports whether it is still there.
func (c *clearing) move(ctx context.Context, p *passenger) (here bool, err error) {
	now, ok := c.pods.Get(p.pod.Namespace, p.pod.Name)
	if !ok || now.UID != p.pod.UID {
		_, err := fmt.Fprintf(c.Out, "pod/%s evicted\n", p.pod.Name)
		return false, err
	}
	p.asked = p.asked || now.DeletionTimestamp != nil
	if p.asked {
		return true, nil
	}
	if p.why == "" {
		if _, err := fmt.Fprintf(c.Out, "evicting pod %s\n", nameOf(p.pod)); err != nil {
			return true, err
		}
	}
	err = c.evict(ctx, c.client, p.pod)
	p.again = time.Time{}
	switch {
	case err == nil:
		p.asked, p.why = true, ""
	case ctx.Err() != nil:
		return true, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		p.asked, p.why = true, "" // already deleted by another client; the watch reports it
	case apierrors.IsTooManyRequests(err):
		c.refused(p, err)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		p.asked = true // it goes with its namespace
	default:
		return false, fmt.Errorf("pod %s: %s", nameOf(p.pod), whyNotEvicted(err))
	}
	return true, nil
}

// refused records why the pod may not be evicted now, and prints the reason if it is new.
func (c *clearing) refused(p *passenger, err error) {
	why := whyNotEvicted(err)
	if why != p.why {
		_, _ = fmt.Fprintf(c.Err, "pod %s: %s\n", nameOf(p.pod), why)
	}
	p.why = why
	// A watch reports a budget that allows evictions again. Other refusals carry a delay.
	switch seconds, said := apierrors.SuggestsClientDelay(err); {
	case said && seconds > 0:
		p.again = time.Now().Add(time.Duration(seconds) * time.Second)
	case c.blind, !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		p.again = time.Now().Add(blindPause)
	}
}

// reason says why a pod is still there.
func (p *passenger) reason() string {
	if p.why != "" {
		return p.why
	}
	if p.asked {
		return "it has not terminated yet"
	}
	return "its eviction was not requested yet"
}

// detached says what goes on without a command that was interrupted.
func (c *clearing) detached() {
	_, _ = fmt.Fprintln(c.Err, "interrupted: the node stays cordoned, and evicted pods continue to terminate")
	for _, p := range c.aboard {
		_, _ = fmt.Fprintf(c.Err, "  pod %s is not deleted yet: %s\n", nameOf(p.pod), p.reason())
	}
}
