// Package upgrade moves the bytes of connections after an upgrade of HTTP, in larger pieces than [io.Copy] does.
package upgrade

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

const (
	// FourRecords is how many bytes fill four records of TLS.
	FourRecords = 64 << 10

	// Piece is how many bytes are moved at once. With its head, of 4 bytes, a WebSocket message of this size fills four
	// records. [io.Copy] moves half as much.
	Piece = FourRecords - 4

	// Frame is how many bytes of a stream are in one frame of SPDY or one message with a channel at most: with its head it is a
	// piece. Clients hand each frame over between goroutines, so large ones cost less.
	Frame = Piece - 8
)

// Copy copies in pieces of a size until from ends, and uses no methods of the two but Write and Read.
func Copy(to io.Writer, from io.Reader, size int) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, size))
}

// A Conn is a connection after an upgrade, as the body of the answer. [io.Copy] prefers the methods WriteTo and
// ReadFrom to its own buffer.
type Conn struct {
	io.ReadWriteCloser

	// Early is what came with the head of the answer. It is read before the connection; nil means that nothing came.
	Early *bytes.Reader

	// Out writes to the connection, by ReadFrom if it has that; nil means that it is written to as it is.
	Out io.Writer
}

// Read implements [io.Reader].
func (c *Conn) Read(p []byte) (int, error) {
	if c.Early != nil && c.Early.Len() > 0 {
		return c.Early.Read(p)
	}
	return c.ReadWriteCloser.Read(p)
}

// Write implements [io.Writer].
func (c *Conn) Write(p []byte) (int, error) {
	if c.Out != nil {
		return c.Out.Write(p)
	}
	return c.ReadWriteCloser.Write(p)
}

// WriteTo implements [io.WriterTo].
func (c *Conn) WriteTo(w io.Writer) (int64, error) { return Copy(w, c, Piece) }

// ReadFrom implements [io.ReaderFrom].
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	if out, ok := c.Out.(io.ReaderFrom); ok {
		return out.ReadFrom(r)
	}
	return Copy(c, r, Piece)
}

// CloseWrite closes the connection for writing.
func (c *Conn) CloseWrite() error {
	if half, ok := c.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return fmt.Errorf("CloseWrite: %w", http.ErrNotSupported)
}
