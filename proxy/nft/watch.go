package nft

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/netfilter"
)

// A watch receives notifications of changes of nftables.
type watch struct {
	conn *netlink.Conn
	lost func()
}

// Watch calls lost whenever another program has removed the table, as `nft flush ruleset` does. It
// blocks until ctx is cancelled, or returns an error if it fails. It may be called once, from any
// goroutine; lost must not block.
func (k *Kernel) Watch(ctx context.Context, lost func()) error {
	c, hangUp, err := netfilter.DialUntil(ctx)
	if err != nil {
		return fmt.Errorf("watching nftables: %w", err)
	}
	defer hangUp()
	if err := c.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return netfilter.Hint(fmt.Errorf("watching nftables: %w", err))
	}
	k.watch.Store(&watch{c, lost})
	defer k.watch.Store(nil)
	for {
		messages, err := c.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS): // notifications were dropped
		case err != nil:
			return fmt.Errorf("watching nftables: %w", err)
		case !slices.ContainsFunc(messages, k.removes):
			continue
		}
		if !k.hasTable() {
			lost()
		}
	}
}

// removes reports whether a message is about the removal of the table.
func (k *Kernel) removes(m netlink.Message) bool {
	if m.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELTABLE || len(m.Data) < 4 || m.Data[0] != unix.NFPROTO_INET {
		return false
	}
	ad, err := netlink.NewAttributeDecoder(m.Data[4:])
	if err != nil {
		return false
	}
	for ad.Next() {
		if ad.Type() == unix.NFTA_TABLE_NAME && ad.String() == k.opts.Table {
			return true
		}
	}
	return false
}

// hasTable reports whether the table exists, or that can't be read.
func (k *Kernel) hasTable() bool {
	tables, err := dump(unix.NFT_MSG_GETTABLE, unix.NFPROTO_INET)
	return err != nil || slices.ContainsFunc(tables, func(o object) bool { return o.table == k.opts.Table })
}

// send sends a batch of our own. The watch leaves the multicast group meanwhile: otherwise the
// kernel would make a notification of every element.
func (k *Kernel) send(b *batch) error {
	w := k.watch.Load()
	if w == nil {
		return send(b)
	}
	left := w.conn.LeaveGroup(unix.NFNLGRP_NFTABLES) == nil
	err := send(b)
	if left && w.conn.JoinGroup(unix.NFNLGRP_NFTABLES) == nil && err == nil && !k.hasTable() {
		w.lost() // removed while the watch was not in the group
	}
	return err
}
