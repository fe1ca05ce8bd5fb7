package standalone

import (
	"context"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler/config"
)

// rights are the permissions that a scheduler works with.
type rights struct {
	required []client.Right // the scheduler does not start without these
	useful   []client.Right // without these pods may remain pending, or the reason is not reported
}

// rightsOf returns the rights for a scheduler that reads some resources, of which a few are optional. Election is nil if no leader is elected.
func rightsOf(reads, optional []schema.GroupVersionResource, e *config.Election) rights {
	var r rights
	for _, gvr := range reads {
		to := &r.required
		if slices.Contains(optional, gvr) {
			to = &r.useful
		}
		*to = append(*to, client.Rights(gvr.GroupResource(), "list", "watch")...)
	}
	pods := client.Pods.GroupResource()
	r.required = append(r.required, client.Right{Verb: "create", GroupResource: pods, Subresource: "binding"})
	if e != nil {
		leases := client.Leases.GroupResource()
		r.required = append(r.required,
			client.Right{Verb: "get", GroupResource: leases, Namespace: e.Namespace, Name: e.Name},
			client.Right{Verb: "create", GroupResource: leases, Namespace: e.Namespace},
			client.Right{Verb: "update", GroupResource: leases, Namespace: e.Namespace, Name: e.Name})
	}
	r.useful = append(r.useful, client.Right{Verb: "patch", GroupResource: pods, Subresource: "status"})
	r.useful = append(r.useful, client.Rights(pods, "delete")...)
	r.useful = append(r.useful, client.Rights(client.Events.GroupResource(), "create", "patch")...)
	for _, written := range []schema.GroupVersionResource{client.PersistentVolumes.GroupVersionResource, client.PersistentVolumeClaims.GroupVersionResource} {
		if slices.Contains(reads, written) {
			r.useful = append(r.useful, client.Rights(written.GroupResource(), "update")...)
		}
	}
	if claims := client.ResourceClaims; slices.Contains(reads, claims.GroupVersionResource) {
		r.useful = append(r.useful, client.Rights(claims.GroupResource(), "get", "update")...)
		r.useful = append(r.useful, client.Right{Verb: "update", GroupResource: claims.GroupResource(), Subresource: "status"},
			client.Right{Verb: "update", GroupResource: claims.GroupResource(), Subresource: "binding"})
	}
	return r
}

const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// await returns when the user of the client has the required rights, or when ctx is cancelled. Missing rights are logged
// once. A server that does not support access reviews is asked only once.
func (r rights) await(ctx context.Context, c client.Interface, log *slog.Logger) {
	missing, ok := missing(ctx, c, slices.Concat(r.required, r.useful), log)
	if !ok || len(missing) == 0 {
		return
	}
	blocking := slices.DeleteFunc(slices.Clone(missing), func(m client.Right) bool { return slices.Contains(r.useful, m) })
	if len(blocking) == 0 {
		log.Warn("the user lacks rights that a scheduler needs at times", "missing", client.DescribeRights(missing))
		return
	}
	log.Warn("the user lacks rights that a scheduler needs; waiting until they are granted", "missing", client.DescribeRights(missing))
	for pause := firstPause; len(blocking) > 0; pause = min(maxPause, 2*pause) {
		if !run.Pause(ctx, pause) {
			return
		}
		// One question is enough while the answer is no.
		for len(blocking) > 0 {
			may, err := client.May(ctx, c, blocking[0])
			if err != nil || !may {
				break
			}
			blocking = blocking[1:]
		}
	}
	log.Info("the user has the rights that a scheduler needs")
}

// missing returns the rights that the user lacks. It waits for a server that does not answer, and returns false for one
// that refuses to say, and when ctx is over.
func missing(ctx context.Context, c client.Interface, all []client.Right, log *slog.Logger) (lacks []client.Right, ok bool) {
	said := false
	for pause := firstPause; len(all) > 0; {
		may, err := client.May(ctx, c, all[0])
		switch {
		case err == nil:
			if !may {
				lacks = append(lacks, all[0])
			}
			all, pause = all[1:], firstPause
			continue
		case ctx.Err() != nil:
			return nil, false
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			return nil, false // the caches report kinds that they may not read
		}
		if !said {
			said = true
			log.Warn("the server does not answer; trying again", "err", err)
		}
		if !run.Pause(ctx, pause) {
			return nil, false
		}
		pause = min(maxPause, 2*pause)
	}
	return lacks, true
}
