package definitions

import (
	"context"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver/admission"
)

// longestJudgement bounds how long a write of a definition waits until the definition is judged. A judgement takes one
// write to the store.
const longestJudgement = time.Second

// An Await is the admission plug-in that lets the answer to a write of a definition wait until the definition is
// judged: then its status has conditions, and its objects can be written. It refuses nothing.
type Await struct{ follower *Follower }

// Await returns the plug-in.
func (f *Follower) Await() Await { return Await{f} }

// Name implements [admission.Plugin].
func (Await) Name() string { return "CustomResourceDefinitions" }

// Validate implements [admission.Validator].
func (p Await) Validate(ctx context.Context, a *admission.Attributes) error {
	d, ok := a.Object.(*definition)
	if !ok || a.Subresource != "" || a.DryRun {
		return nil
	}
	a.Done = append(a.Done, func(committed bool) {
		if committed {
			p.follower.await(ctx, d)
		}
	})
	return nil
}

// await blocks until the definition, or a later generation of it, is judged, for at most longestJudgement.
func (f *Follower) await(ctx context.Context, d *definition) {
	select {
	case <-f.ready:
	default:
		return // the server is starting
	}
	timeout := time.NewTimer(longestJudgement)
	defer timeout.Stop()
	for {
		generation, next := f.judgement(d.UID)
		if generation >= d.Generation {
			return
		}
		select {
		case <-next:
		case <-timeout.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// judgement returns which generation of a definition was judged last, 0 if none was, and a channel that is closed at
// the next judgement of any.
func (f *Follower) judgement(uid types.UID) (int64, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.judged[uid], f.next
}

// note records a judgement.
func (f *Follower) note(d *apiextensionsv1.CustomResourceDefinition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.judged[d.UID] == d.Generation {
		return
	}
	f.judged[d.UID] = d.Generation
	close(f.next)
	f.next = make(chan struct{})
}
