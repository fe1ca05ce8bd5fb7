package node

import "context"

func (n *Node) serve(ctx context.Context) error { <-ctx.Done(); return nil }
