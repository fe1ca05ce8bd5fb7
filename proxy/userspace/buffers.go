package userspace

import (
	"sync"
	"sync/atomic"
)

// Sizes of buffers. A direction has a buffer while it writes, so peers that do not read keep many. At most
// manyBuffers large ones are in use (64 MiB); other directions get small ones.
const (
	largeBuffer = 64 << 10
	smallBuffer = 4 << 10
	manyBuffers = 1024
)

// buffers holds memory for bytes between two sockets. It is safe for concurrent use; the zero value is ready.
type buffers struct {
	large, small sync.Pool
	lent         atomic.Int64 // large ones in use
}

// get returns a buffer, which the caller puts back.
func (b *buffers) get() []byte {
	if b.lent.Add(1) > manyBuffers {
		b.lent.Add(-1)
		if small, ok := b.small.Get().(*[smallBuffer]byte); ok {
			return small[:]
		}
		return make([]byte, smallBuffer)
	}
	if large, ok := b.large.Get().(*[largeBuffer]byte); ok {
		return large[:]
	}
	return make([]byte, largeBuffer)
}

// put takes back the whole of a buffer.
func (b *buffers) put(buf []byte) {
	if len(buf) == smallBuffer {
		b.small.Put((*[smallBuffer]byte)(buf))
		return
	}
	b.lent.Add(-1)
	b.large.Put((*[largeBuffer]byte)(buf))
}
