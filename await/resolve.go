package await

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sampan-io/sampan/await/definition"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/follow"
)

// resolvePause is the longest pause between two attempts to resolve a kind.
const resolvePause = 10 * time.Second

// resolve calls ask until it returns the resource of a target: at once when again signals that definitions have changed,
// and with growing pauses otherwise. It reports the result with send, and returns when send returns false.
func resolve(ctx context.Context, ask func(context.Context, Target) (Target, error), t Target, again <-chan struct{}, send func(follow.Step) bool) {
	pause := follow.FirstPause
	timer := time.NewTimer(0)
	defer timer.Stop()
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-again:
			pause = follow.FirstPause
		case <-timer.C:
		}
		found, err := ask(ctx, t)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && found.Resource.Resource != "":
			send(resolved{target: found})
			return
		case err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err):
			if !send(follow.Failed{Err: err, Final: follow.Hopeless(err)}) || follow.Hopeless(err) {
				return
			}
		case first:
			if !send(unserved{}) {
				return
			}
		}
		timer.Reset(pause)
		pause = min(2*pause, resolvePause)
	}
}

// watchDefinitions follows CustomResourceDefinitions, to find kinds that the server does not serve yet.
func (w *watcher) watchDefinitions() {
	if w.kinds == nil {
		w.kinds = &feed{source: source{GroupVersionResource: definitions}, late: true, news: true}
		w.every = append(w.every, w.kinds)
		w.pending++
		w.start(w.kinds)
	}
}

// kindsChanged handles a change of definitions: unserved feeds retry at once, and targets get the resource of a kind that
// is established now.
func (w *watcher) kindsChanged(r follow.Step) {
	var changed []client.Object
	switch r := r.(type) {
	case follow.Page:
		if changed = r.Objects; r.Whole {
			w.listed(w.kinds)
		}
	case *follow.Changed:
		changed = []client.Object{r.Object}
	}
	for _, f := range w.primaries {
		if !f.unserved {
			continue
		}
		f.again.Ring()
		if f.Resource != "" {
			continue
		}
		for _, o := range changed {
			if u, ok := o.(*unstructured.Unstructured); ok {
				if t, found := defined(u, *f.targets[0]); found {
					w.settleKind(f, t)
					break
				}
			}
		}
	}
}

// defined returns the target with its resource if this is the definition of its kind and is established.
func defined(u *unstructured.Unstructured, t Target) (Target, bool) {
	verdict, err := judgeDefinition(Ready, u, nil)
	if err != nil || verdict.State != Done {
		return t, false
	}
	found, is := definition.Find(u, t.Kind, t.Resource.GroupVersion())
	if !is {
		return t, false
	}
	t.Resource, t.Kind = found.Resource, found.Kind
	if !found.Namespaced {
		t.Namespace = ""
	}
	return t, true
}

// settleKind sets the resource of the targets of a feed whose kind was unknown, and starts the feed.
func (w *watcher) settleKind(f *feed, t Target) {
	if f.Resource != "" || len(f.targets) == 0 {
		return
	}
	target := f.targets[0]
	target.Resource, target.Kind, target.Namespace = t.Resource, t.Kind, t.Namespace
	f.source = sourceOf(target)
	if target.Name != "" {
		f.fields = "metadata.name=" + target.Name
	}
	for key, m := range f.members {
		delete(f.members, key)
		m.namespace = t.Namespace
		f.members[m.key()] = m
		w.touch(m)
	}
	w.start(f)
}

// sourceOf returns the source that lists the objects of a target.
func sourceOf(t *Target) source {
	return source{GroupVersionResource: t.Resource, namespace: t.Namespace, labels: t.Labels, fields: t.Fields}
}
