package nft

import (
	"errors"
	"time"
)

// Listening reports whether k hears of connections as they begin.
func (k *Kernel) Listening() bool {
	k.drains.looking.Lock()
	defer k.drains.looking.Unlock()
	return k.drains.arrivals.listening()
}

// ReadAll is when all connections were read last.
func (k *Kernel) ReadAll() time.Time {
	k.drains.looking.Lock()
	defer k.drains.looking.Unlock()
	return k.drains.read
}

// Remembers reports whether conntrack knows a connection from a port.
func Remembers(port uint16) (yes bool, err error) {
	c, err := openConntrack()
	if err != nil {
		return false, err
	}
	defer c.close()
	for _, v6 := range []bool{false, true} {
		err = errors.Join(err, c.each(selection{v6: v6}, func(f *flow) { yes = yes || f.client.Port() == port }))
	}
	return yes, err
}
