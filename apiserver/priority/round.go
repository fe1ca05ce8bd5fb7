package priority

import (
	"os"
	"sync"
)

// A round gives back together the seats of requests that are done and for whose seats others wait, once the processors have
// nothing else to do. Go looks for data that has arrived when a processor has nothing to do, or else ten milliseconds after it
// looked last. A crowd of cheap requests keeps the processors busy, because each that is done makes the next one ready: all
// other clients, those of administrators too, would then wait for these ten milliseconds again and again. At the end of a
// round there is always a look, which finds the round's own pipe.
//
// The zero round is ready for use.
type round struct {
	mu      sync.Mutex
	leaving []Ticket // guarded by mu
	spare   []Ticket // guarded by mu; empty, the memory of an earlier round

	// Of the request that waits for the end, one at a time.
	read, write *os.File
}

// leave gives seats back at the end of the round. The first request of each round waits for that, the others do not wait.
func (r *round) leave(t Ticket) {
	r.mu.Lock()
	first := len(r.leaving) == 0
	r.leaving = append(r.leaving, t)
	r.mu.Unlock()
	if !first {
		return
	}
	_ = r.wait() // after an error the round ends at once
	r.mu.Lock()
	tickets := r.leaving
	r.leaving, r.spare = r.spare, nil
	r.mu.Unlock()
	for i := range tickets {
		tickets[i].giveBack()
	}
	clear(tickets)
	r.mu.Lock()
	r.spare = tickets[:0]
	r.mu.Unlock()
}

// wait returns when a processor has found a byte in the pipe, as it would find one that a client has sent.
func (r *round) wait() error {
	if r.read == nil {
		read, write, err := os.Pipe()
		if err != nil {
			return err
		}
		r.read, r.write = read, write
	}
	conn, err := r.read.SyscallConn()
	if err != nil {
		return err
	}
	written := false
	err = conn.Read(func(uintptr) (done bool) {
		if written {
			return true
		}
		// It is written after this goroutine has begun to wait, so that it is not read at once.
		written = true
		_, err = r.write.Write([]byte{0})
		return err != nil
	})
	if err != nil {
		return err
	}
	_, err = r.read.Read(make([]byte, 1))
	return err
}
