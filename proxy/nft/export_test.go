package nft

import "time"

// Listening reports whether k listens to new flows.
func (k *Kernel) Listening() bool { return k.drains.Listening() }

// ReadAll returns when k last read all flows.
func (k *Kernel) ReadAll() time.Time { return k.drains.ReadAll() }
