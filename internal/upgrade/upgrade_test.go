package upgrade_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/internal/upgrade"
)

// A pipe is a connection with input. It records the sizes of the writes.
type pipe struct {
	io.Reader
	sizes  []int
	output strings.Builder
}

func (p *pipe) Write(b []byte) (int, error) {
	p.sizes = append(p.sizes, len(b))
	return p.output.Write(b)
}

func (*pipe) Close() error { return nil }

// halfPipe is a pipe that can be closed for writing.
type halfPipe struct {
	pipe
	closed bool
}

func (p *halfPipe) CloseWrite() error {
	p.closed = true
	return nil
}

// frames writes in upper case, and counts the calls of ReadFrom.
type frames struct {
	to   io.Writer
	read int
}

func (f *frames) Write(b []byte) (int, error) { return f.to.Write(bytes.ToUpper(b)) }

func (f *frames) ReadFrom(r io.Reader) (int64, error) {
	f.read++
	return io.Copy(struct{ io.Writer }{f}, r)
}

func TestEarlyBytesAreReadFirst(t *testing.T) {
	for name, read := range map[string]func(c *upgrade.Conn) (string, error){
		"Read": func(c *upgrade.Conn) (string, error) {
			b, err := io.ReadAll(struct{ io.Reader }{c})
			return string(b), err
		},
		"WriteTo": func(c *upgrade.Conn) (string, error) {
			var out strings.Builder
			_, err := io.Copy(&out, c)
			return out.String(), err
		},
	} {
		c := &upgrade.Conn{ReadWriteCloser: &pipe{Reader: strings.NewReader("later")}, Early: bytes.NewReader([]byte("first "))}
		if got, err := read(c); err != nil || got != "first later" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		c = &upgrade.Conn{ReadWriteCloser: &pipe{Reader: strings.NewReader("later")}}
		if got, err := read(c); err != nil || got != "later" {
			t.Errorf("%s without early bytes: %q, %v", name, got, err)
		}
	}
}

func TestPiecesFillRecords(t *testing.T) {
	want := []int{upgrade.Piece, upgrade.Piece, 1}
	text := strings.Repeat("x", 2*upgrade.Piece+1)
	in := &pipe{}
	if n, err := io.Copy(&upgrade.Conn{ReadWriteCloser: in}, struct{ io.Reader }{strings.NewReader(text)}); err != nil || n != int64(len(text)) || !slices.Equal(in.sizes, want) {
		t.Errorf("to the connection: pieces of %d bytes, want %d; %d copied, %v", in.sizes, want, n, err)
	}
	out := &pipe{}
	if n, err := io.Copy(out, &upgrade.Conn{ReadWriteCloser: &pipe{Reader: strings.NewReader(text)}}); err != nil || n != int64(len(text)) || !slices.Equal(out.sizes, want) {
		t.Errorf("from the connection: pieces of %d bytes, want %d; %d copied, %v", out.sizes, want, n, err)
	}
}

func TestOutWritesToTheConnection(t *testing.T) {
	p := &halfPipe{}
	f := &frames{to: p}
	c := &upgrade.Conn{ReadWriteCloser: p, Out: f}
	_, first := io.WriteString(c, "a")
	_, second := io.Copy(c, struct{ io.Reader }{strings.NewReader("b")})
	if err := errors.Join(first, second, c.CloseWrite()); err != nil || p.output.String() != "AB" || f.read != 1 || !p.closed {
		t.Errorf("written %q with %d calls of ReadFrom, closed %t, %v", p.output.String(), f.read, p.closed, err)
	}
	if err := (&upgrade.Conn{ReadWriteCloser: &pipe{}}).CloseWrite(); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("CloseWrite of a connection without it: %v", err)
	}
}
