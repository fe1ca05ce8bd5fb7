package hostfirewall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	mdnetlink "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/names"
	"github.com/sampan-io/sampan/internal/netfilter"
	"github.com/sampan-io/sampan/internal/run"
)

// Options configures [Run]. All fields are required.
type Options struct {
	Client client.Interface        // with the right to write the status of the Node
	Node   string                  // the name of the Node
	Link   string                  // the bridge of the pods
	Own    func(table string) bool // reports whether a table is one of the cluster's own
	Ready  func()                  // is called once the condition is written, if it has to be, or cannot be written
	Log    *slog.Logger
}

// Run keeps the condition of the Node until ctx is cancelled. It writes the condition when something is dropped, and when
// that has changed. It returns nil if the packet filter cannot be watched, and logs that.
func Run(ctx context.Context, o Options) error {
	conn, hangUp, err := netfilter.DialUntil(ctx)
	if err == nil {
		defer hangUp()
		err = conn.JoinGroup(unix.NFNLGRP_NFTABLES)
	}
	if err != nil {
		o.Log.WarnContext(ctx, "the host's packet filter is not watched", "err", err)
		o.Ready()
		<-ctx.Done()
		return nil
	}
	changed := run.NewBell()
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	g.Go(func(ctx context.Context) { o.watch(ctx, conn, changed) })
	last, written := "", false
	for failures := 0; ; {
		var again <-chan time.Time
		now, err := o.drops()
		if err == nil && (now != last || now != "" && !written) {
			if err = o.write(ctx, now); err == nil {
				last, written = now, true
			}
		}
		if err == nil {
			failures = 0
		} else {
			failures++
			again = time.After(run.Backoff{First: time.Second, Max: time.Minute}.Pause(failures))
			o.Log.DebugContext(ctx, "the condition about the host's packet filter is not written", "err", err)
		}
		o.Ready()
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-changed:
		}
	}
}

func (o Options) drops() (string, error) {
	chains, err := Read(o.Own)
	return strings.Join(Find(chains, o.Link), "; "), err
}

// watch reports changes of other programs' chains and rules.
func (o Options) watch(ctx context.Context, conn *mdnetlink.Conn, changed run.Bell) {
	for {
		messages, err := conn.Receive()
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) { // with ENOBUFS, notifications were dropped
			o.Log.WarnContext(ctx, "the host's packet filter is not watched any more", "err", err)
			return
		}
		relevant := err != nil
		for _, m := range messages {
			relevant = relevant || o.relevant(m)
		}
		if !relevant {
			continue
		}
		changed.Ring()
	}
}

// relevant reports whether a message is about a chain or rule of a table that is not the cluster's own.
func (o Options) relevant(m mdnetlink.Message) bool {
	switch int(m.Header.Type) &^ (unix.NFNL_SUBSYS_NFTABLES << 8) {
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELTABLE:
	default:
		return false
	}
	const tableName = 1 // NFTA_TABLE_NAME, NFTA_CHAIN_TABLE and NFTA_RULE_TABLE
	if len(m.Data) < 4 {
		return false
	}
	ad, err := mdnetlink.NewAttributeDecoder(m.Data[4:])
	if err != nil {
		return true
	}
	for ad.Next() {
		if ad.Type() == tableName {
			return !o.Own(ad.String())
		}
	}
	return true
}

// write writes the condition.
func (o Options) write(ctx context.Context, drops string) error {
	now := metav1.NewTime(time.Now()).Rfc3339Copy()
	c := corev1.NodeCondition{
		Type: names.FirewallDropsPods, Status: corev1.ConditionFalse, Reason: "NoPolicyDrops", Message: "no chain of the host drops the packets of pods",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if drops != "" {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "PolicyDrops", drops
		o.Log.WarnContext(ctx, "the host's packet filter drops packets of pods", "found", drops)
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{c}}})
	if err != nil {
		return err
	}
	_, err = client.Nodes.Patch(ctx, o.Client, "", o.Node, types.StrategicMergePatchType, patch, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the status of the node: %w", err)
	}
	return err
}
