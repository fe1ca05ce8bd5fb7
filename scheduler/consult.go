package scheduler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// An Extender is somebody outside who has a say in decisions. It is asked on goroutines of its own, about nodes that
// fit so far, and the pod is decided about with its answer afterwards: one that is slow costs its own
// pods and no others. Its methods are called by many goroutines at once.
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
func (k *keeper) consult(it *item, pod *plugin.Pod, nodes []*corev1.Node) {
	obj := pod.Pod
	k.talk.Go(func(ctx context.Context) {
		var o *opinions
		err := run.Catch(func() (err error) {
			o, err = k.ask(ctx, obj, nodes)
			return err
		})
		k.post(func(k *keeper) {
			switch {
			case k.queue.items[obj.UID] != it, k.placed[obj.UID] != nil: // it has changed since, and was asked about again
			case err != nil:
				k.failed(it, pod, err)
			default:
				it.opinions = o
				k.queue.enqueue(it)
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
				s.opts.Log.Warn("going on without an extender", "extender", e.Name(), "err", err)
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
			s.opts.Log.Warn("going on without an extender", "extender", e.Name(), "err", err)
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
