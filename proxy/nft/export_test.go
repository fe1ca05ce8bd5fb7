package nft

import "time"

// Listening reports whether k hears of connections as they begin.
func (k *Kernel) Listening() bool {
	k.departed.looking.Lock()
	defer k.departed.looking.Unlock()
	return k.departed.arrivals.listening()
}

// ReadAll is when all connections were read last.
func (k *Kernel) ReadAll() time.Time {
	k.departed.looking.Lock()
	defer k.departed.looking.Unlock()
	return k.departed.read
}
