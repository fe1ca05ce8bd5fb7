package channels

import (
	"encoding/json"
	"io"
)

// A Size is that of a terminal, in characters. Clients send each as JSON.
type Size struct{ Width, Height uint16 }

// mostSize is how many bytes the JSON of a size has at most. A decoder holds all of a value.
const mostSize = 4 << 10

// ReadSizes passes the sizes of a terminal on until the stream ends, and closes the channel when no more come. The channel must have
// room for one. It has the newest: sizes that a command does not take must not stop the other streams of the client.
func ReadSizes(from io.Reader, to chan Size) {
	limited := &io.LimitedReader{R: from}
	for in := json.NewDecoder(limited); ; {
		limited.N = mostSize
		var size Size
		if in.Decode(&size) != nil {
			break
		}
		select {
		case <-to:
		default:
		}
		to <- size
	}
	close(to)
	_, _ = io.Copy(io.Discard, from) // neither must what follows a wrong one
}
