package scheduler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// An Extender is a service outside of the process that takes part in decisions. It is called on a separate goroutine, with
// the nodes that fit so far, and then the pod is decided about again with its answer. So a slow extender delays only the
// pods that it is interested in. Its methods are called concurrently.
type Extender interface {
	// Name is what errors call it.
	Name() string

	// Interested reports whether it has to be asked about a pod.
	Interested(pod *corev1.Pod) bool

	// Ignorable reports whether decisions go on without it when it fails.
	Ignorable() bool

	// Ask rules out and ranks nodes.
	Ask(ctx context.Context, pod *corev1.Pod, nodes []*corev1.Node) (Opinion, error)

	// Spare says whether a pod may get room on a node by the end of these pods. It is asked if some
	// PostFilter found that.
	Spare(ctx context.Context, pod *corev1.Pod, node string, victims []*corev1.Pod) (bool, error)

	// Binds reports whether it binds pods, and Bind does so.
	Binds() bool
	Bind(ctx context.Context, pod *corev1.Pod, node string) error
}

// An Opinion is an Extender's answer.
type Opinion struct {
	Refused map[string]plugin.Verdict // by node
	Scores  map[string]int64          // by node, weighted: they are added to those of the plug-ins
}

// opinions are those of all extenders that have to be asked about a pod.
type opinions struct {
	nodes   map[string]bool // that were asked about
	refused map[string]plugin.Verdict
	scores  map[string]int64
}

func (s *Scheduler) interested(pod *corev1.Pod) []Extender {
	var all []Extender
	for _, e := range s.opts.Extenders {
		if e.Interested(pod) {
			all = append(all, e)
		}
	}
	return all
}

// consult asks extenders about the nodes that fit, and has the pod decided about again.
func (l *loop) consult(it *item, pod *plugin.Pod, nodes []*corev1.Node) {
	obj := pod.Pod
	l.slow.Go(func(ctx context.Context) {
		var o *opinions
		err := run.Catch(func() (err error) {
			o, err = l.ask(ctx, obj, nodes)
			return err
		})
		l.post(func(l *loop) {
			switch {
			case l.queue.items[obj.UID] != it, l.placed[obj.UID] != nil: // it has changed since, and was asked about again
			case err != nil:
				l.failed(it, pod, err)
			default:
				it.opinions = o
				l.queue.enqueue(it)
			}
		})
	})
}

func (s *Scheduler) ask(ctx context.Context, pod *corev1.Pod, nodes []*corev1.Node) (*opinions, error) {
	o := &opinions{nodes: map[string]bool{}, refused: map[string]plugin.Verdict{}, scores: map[string]int64{}}
	for _, n := range nodes {
		o.nodes[n.Name] = true
	}
	for _, e := range s.interested(pod) {
		if len(nodes) == 0 {
			break
		}
		got, err := e.Ask(ctx, pod, nodes)
		if err != nil {
			if e.Ignorable() && ctx.Err() == nil {
				s.opts.Log.Warn("extender failed, continuing without it", "extender", e.Name(), "err", err)
				continue
			}
			return nil, fmt.Errorf("extender %s: %w", e.Name(), err)
		}
		var left []*corev1.Node
		for _, n := range nodes {
			if v, no := got.Refused[n.Name]; no {
				o.refused[n.Name] = v
				continue
			}
			left = append(left, n)
			o.scores[n.Name] += got.Scores[n.Name]
		}
		nodes = left
	}
	return o, nil
}

// spared reports whether all extenders agree that room is made for a pod.
func (s *Scheduler) spared(ctx context.Context, pod *corev1.Pod, node string, victims []*corev1.Pod) (bool, error) {
	for _, e := range s.interested(pod) {
		ok, err := e.Spare(ctx, pod, node, victims)
		if err != nil && e.Ignorable() && ctx.Err() == nil {
			s.opts.Log.Warn("extender failed, continuing without it", "extender", e.Name(), "err", err)
			continue
		}
		if err != nil {
			return false, fmt.Errorf("extender %s: %w", e.Name(), err)
		}
		if !ok {
			return false, nil
		}
	}
	return true, nil
}
