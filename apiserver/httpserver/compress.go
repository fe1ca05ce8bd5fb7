package httpserver

import (
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
)

// compressFrom is the size in bytes from which an answer is compressed, as in Kubernetes.
const compressFrom = 128 << 10

// compresses reports whether a large answer to this request is sent as gzip. A client on this
// machine gets it as it is: to copy it is cheaper than to compress it.
func (x *exchange) compresses() bool {
	return takesGzip(x.r.Header.Values("Accept-Encoding")) && !x.isLocal()
}

// takesGzip reports whether the Accept-Encoding headers name gzip (RFC 9110, 12.5.3).
func takesGzip(headers []string) bool {
	for _, h := range headers {
		for coding := range strings.SplitSeq(h, ",") {
			name, weight, _ := strings.Cut(coding, ";")
			if strings.EqualFold(strings.TrimSpace(name), "gzip") {
				q, err := strconv.ParseFloat(strings.TrimPrefix(strings.ReplaceAll(weight, " ", ""), "q="), 64)
				return err != nil || q > 0
			}
		}
	}
	return false
}

// isLocal reports whether the client has a loopback address or the address on which it reached the
// server.
func (x *exchange) isLocal() bool {
	client, err := netip.ParseAddr(host(x.r.RemoteAddr))
	if err != nil || client.Unmap().IsLoopback() {
		return err == nil
	}
	here, ok := x.r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	server, err := netip.ParseAddr(host(here.String()))
	return err == nil && client.Unmap() == server.Unmap()
}

var gzipWriters = sync.Pool{New: func() any { // a pool is state of the process by its nature
	w, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // a level that there is
	return w
}}

// A compressor is the body of a successful answer whose size is not known yet. It holds back the
// header and the first bytes, and sends the answer as gzip once it has compressFrom bytes.
type compressor struct {
	x    *exchange
	held []byte
	zip  *gzip.Writer // nil while the answer is small
}

// Write implements [io.Writer].
func (c *compressor) Write(b []byte) (int, error) {
	if c.zip == nil && len(c.held)+len(b) < compressFrom {
		c.held = append(c.held, b...)
		return len(b), nil
	}
	if c.zip == nil {
		c.x.Header().Set("Content-Encoding", "gzip")
		c.x.WriteHeader(http.StatusOK)
		c.zip = gzipWriters.Get().(*gzip.Writer)
		c.zip.Reset(c.x)
		if _, err := c.zip.Write(c.held); err != nil {
			return 0, err
		}
		c.held = nil
	}
	return c.zip.Write(b)
}

// end sends the bytes held back.
func (c *compressor) end() {
	if c.zip == nil {
		c.x.Header()["Content-Length"] = []string{strconv.Itoa(len(c.held))}
		c.x.WriteHeader(http.StatusOK)
		_, _ = c.x.Write(c.held) // a client that has gone needs no answer
		return
	}
	_ = c.zip.Close()
	c.release()
}

// release returns the writer of an answer that was ended or broken off.
func (c *compressor) release() {
	if c.zip != nil {
		c.zip.Reset(io.Discard)
		gzipWriters.Put(c.zip)
		c.zip = nil
	}
}
