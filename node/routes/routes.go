package routes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/run"
)

// Options configures a [Reconciler]. All fields but Log are required.
type Options struct {
	Caches *cache.Shared  // with the rights to list and watch nodes
	Node   string         // the name of this node
	Pods   []netip.Prefix // the pod networks of the cluster
	Own    []netip.Prefix // those of this node
	Log    *slog.Logger   // nil means slog.Default
}

// A Reconciler keeps the routes of a node. Make one with [New].
type Reconciler struct {
	opts  Options
	nodes *cache.Cache[*corev1.Node]
	wake  run.Bell
	ready chan struct{}
}

// New returns a Reconciler. It does not touch the routes; call [Reconciler.Run].
func New(o Options) *Reconciler {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	k := &Reconciler{opts: o, nodes: cache.Of(o.Caches, client.Nodes, nil), wake: run.NewBell(), ready: make(chan struct{})}
	k.nodes.Subscribe(func(before, after *corev1.Node) {
		if before == nil || after == nil || !slices.Equal(before.Status.Addresses, after.Status.Addresses) || !slices.Equal(before.Spec.PodCIDRs, after.Spec.PodCIDRs) {
			k.again()
		}
	})
	return k
}

// Ready is closed when the routes were written for the first time.
func (k *Reconciler) Ready() <-chan struct{} { return k.ready }

func (k *Reconciler) again() {
	k.wake.Ring()
}

// pace are the pauses after routes could not be written. A change of a Node or of this host ends a pause.
func pace() run.Backoff { return run.Backoff{First: 100 * time.Millisecond, Max: time.Minute} }

// Run keeps the routes until ctx is cancelled. It leaves them in place.
func (k *Reconciler) Run(ctx context.Context) error {
	select {
	case <-k.nodes.Ready():
	case <-ctx.Done():
		return nil
	}
	if err := k.follow(ctx); err != nil {
		return err
	}
	failures, last := 0, ""
	for {
		want, faults := Plan(k.nodes.List(""), k.opts.Node, k.opts.Pods, k.opts.Own)
		unreachable, err := apply(k.opts.Pods, want)
		if faults = append(faults, unreachable...); err != nil {
			faults = append(faults, err.Error())
		}
		if text := strings.Join(faults, "; "); text != last {
			if last = text; text != "" {
				k.opts.Log.WarnContext(ctx, "pods of other nodes cannot be reached", "err", text)
			}
		}
		var again <-chan time.Time
		if err == nil {
			failures = 0
			select {
			case <-k.ready:
			default:
				close(k.ready)
			}
		} else {
			failures++
			again = time.After(pace().Pause(failures))
		}
		select {
		case <-k.wake:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// follow has routes written again when routes or addresses of this host change: a link that goes down loses its routes.
func (k *Reconciler) follow(ctx context.Context) error {
	failed := func(error) { k.again() }
	routes, addresses := make(chan netlink.RouteUpdate, 64), make(chan netlink.AddrUpdate, 64)
	err := errors.Join(
		netlink.RouteSubscribeWithOptions(routes, ctx.Done(), netlink.RouteSubscribeOptions{ErrorCallback: failed}),
		netlink.AddrSubscribeWithOptions(addresses, ctx.Done(), netlink.AddrSubscribeOptions{ErrorCallback: failed}),
	)
	if err != nil {
		return fmt.Errorf("following the routes of this host: %w", err)
	}
	g := run.NewGroup(context.WithoutCancel(ctx), 0) // they end when the channels are closed
	g.Go(func(context.Context) {
		for range routes {
			k.again()
		}
	})
	g.Go(func(context.Context) {
		for range addresses {
			k.again()
		}
	})
	return nil
}
