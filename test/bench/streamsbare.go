package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// The floor under streams is a copy over TLS between two processes. Streams do not begin and end in these
// two: they come from a process in a pod, by a connection or a pipe, and go to a process of the user. So there is a
// second floor, a pair of processes that copy between such ends and a TLS connection with [io.Copy] and nothing else.
const (
	bareSourceVerb = "bare-source" // [LISTEN]: a server whose clients want bytes or send them; over TCP and TLS
	bareZerosVerb  = "bare-zeros"  // N: prints N bytes
	bareSinkVerb   = "bare-sink"   // prints a line, reads its input, and prints how many bytes that had
	barePlugVerb   = "bare-plug"   // TO: the TLS side in front of a source, and of a command that prints
	bareRelayVerb  = "bare-relay"  // TO: accepts TCP connections and opens others for them; the kernel moves the bytes
	bareSocketVerb = "bare-socket" // TO CERTIFICATE: accepts TCP connections and opens TLS connections for them
	barePipeVerb   = "bare-pipe"   // FROM CERTIFICATE N: prints N bytes of a TLS connection
)

// piece is how much the source and the command write at once: as much as [io.Copy] does.
const piece = 32 << 10

// A streamGreeting is what these processes print when they serve.
type streamGreeting struct {
	Plain, TLS, Command string // addresses
	Certificate         []byte
}

// serveStreams runs one of the verbs. A server ends with its standard input.
func serveStreams(verb string, args []string) error {
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	switch verb {
	case bareSourceVerb:
		return serveSource(arg(0))
	case barePlugVerb:
		return servePlug(arg(0))
	case bareRelayVerb:
		return serveRelay(func() (halfCloser, error) { return dialPlain(arg(0))(context.Background()) })
	case bareSinkVerb:
		return sink()
	case bareSocketVerb:
		return serveRelay(func() (halfCloser, error) { return dialBare(arg(0), arg(1)) })
	}
	n, err := strconv.ParseInt(args[len(args)-1], 10, 64)
	if err != nil {
		return err
	}
	if verb == bareZerosVerb {
		return zeros(os.Stdout, n)
	}
	conn, err := dialBare(arg(0), arg(1))
	if err != nil {
		return err
	}
	if err := request(conn, n); err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, conn)
	return errors.Join(err, conn.Close())
}

// zeros writes n bytes.
func zeros(to io.Writer, n int64) error {
	for buf := make([]byte, piece); n > 0; n -= piece {
		if _, err := to.Write(buf[:min(n, piece)]); err != nil {
			return err
		}
	}
	return nil
}

func sink() error {
	if _, err := fmt.Println(sinkReady); err != nil {
		return err
	}
	n, err := io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{os.Stdin})
	if err != nil {
		return err
	}
	_, err = fmt.Println(n)
	return err
}

// sinkReady is the first line of a sink.
const sinkReady = "ready"

// request asks a source for n bytes.
func request(to io.Writer, n int64) error {
	return binary.Write(to, binary.BigEndian, n)
}

// A halfCloser is a connection whose ends may be closed one by one.
type halfCloser interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// feed answers a connection of the source: it sends as many bytes as the client requests, reads to the end of what the client
// sends, and confirms that with one byte.
func feed(conn halfCloser) error {
	defer func() { _ = conn.Close() }()
	var n int64
	if err := binary.Read(conn, binary.BigEndian, &n); err != nil {
		return err
	}
	if err := zeros(conn, n); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, struct{ io.Reader }{conn}); err != nil {
		return err
	}
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	return conn.CloseWrite()
}

// transfer is the client of a source: it receives and sends so many bytes, and returns how long that took from the first
// byte on.
func transfer(conn halfCloser, down, up int64) (time.Duration, error) {
	defer func() { _ = conn.Close() }()
	if err := request(conn, down); err != nil {
		return 0, err
	}
	buf := make([]byte, 64<<10)
	var began time.Time
	if up > 0 {
		began = time.Now()
		if err := zeros(conn, up); err != nil {
			return 0, err
		}
	}
	if err := conn.CloseWrite(); err != nil {
		return 0, err
	}
	want := down + 1
	for got := int64(0); ; {
		n, err := conn.Read(buf)
		if began.IsZero() {
			began = time.Now()
		}
		got += int64(n)
		switch {
		case errors.Is(err, io.EOF) && got == want:
			return time.Since(began), nil
		case err != nil:
			return 0, fmt.Errorf("%d of %d bytes came: %w", got, want, err)
		}
	}
}

// accept serves the connections of a listener.
func accept(l net.Listener, serve func(halfCloser) error) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			if err := serve(conn.(halfCloser)); err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
			}
		}()
	}
}

// bareTLS returns the configuration of a server on 127.0.0.1 and its certificate.
func bareTLS() (*tls.Config, []byte) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates, MinVersion: tls.VersionTLS13}, s.Certificate().Raw
}

func serveSource(listen string) error {
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	plain, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	config, cert := bareTLS()
	secure, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		return err
	}
	go accept(plain, feed)
	go accept(secure, feed)
	return greetUntilEnd(streamGreeting{Plain: plain.Addr().String(), TLS: secure.Addr().String(), Certificate: cert})
}

// greetUntilEnd prints a greeting and waits for the end of standard input, or for ever in a pod, which has none.
func greetUntilEnd(g streamGreeting) error {
	if err := json.NewEncoder(os.Stdout).Encode(g); err != nil {
		return err
	}
	if os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		select {}
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func servePlug(to string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	config, cert := bareTLS()
	conns, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		return err
	}
	commands, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		return err
	}
	go accept(conns, func(c halfCloser) error {
		back, err := net.Dial("tcp", to)
		if err != nil {
			return err
		}
		return relay(c, back.(*net.TCPConn))
	})
	go accept(commands, func(c halfCloser) error {
		defer func() { _ = c.Close() }()
		var n int64
		if err := binary.Read(c, binary.BigEndian, &n); err != nil {
			return err
		}
		cmd := exec.Command(self, bareZerosVerb, strconv.FormatInt(n, 10))
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		_, err = io.Copy(c, out)
		return errors.Join(err, cmd.Wait())
	})
	return greetUntilEnd(streamGreeting{TLS: conns.Addr().String(), Command: commands.Addr().String(), Certificate: cert})
}

func serveRelay(dial func() (halfCloser, error)) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go accept(l, func(c halfCloser) error {
		back, err := dial()
		if err != nil {
			return err
		}
		return relay(c, back)
	})
	return greetUntilEnd(streamGreeting{Plain: l.Addr().String()})
}

// relay copies in both directions.
func relay(a, b halfCloser) error {
	defer func() { _, _ = a.Close(), b.Close() }()
	up := make(chan error, 1)
	go func() {
		_, err := io.Copy(b, a)
		up <- errors.Join(err, b.CloseWrite())
	}()
	_, err := io.Copy(a, b)
	return errors.Join(err, a.CloseWrite(), <-up)
}

// dialBare opens a TLS connection to one of these processes.
func dialBare(to, cert string) (*tls.Conn, error) {
	raw, err := base64.StdEncoding.DecodeString(cert)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Dial("tcp", to, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13})
}

// startVerb runs this program with one of the verbs and reads its greeting.
func startVerb(ctx context.Context, greeting any, args ...string) (pid int, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	stop = func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
	if err := json.NewDecoder(out).Decode(greeting); err != nil {
		stop()
		return 0, nil, fmt.Errorf("%s did not start: %w", args[0], err)
	}
	return cmd.Process.Pid, stop, nil
}
