package run

// A Bell wakes a goroutine that waits for it, in a select statement or by a receive. Rings that come before it looks are one.
// Several goroutines may ring; if several wait, one of them is woken.
type Bell chan struct{}

// NewBell returns a bell.
func NewBell() Bell { return make(Bell, 1) }

// Ring wakes the goroutine, now or when it waits the next time. It does not block.
func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}
