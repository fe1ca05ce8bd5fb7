package shutdown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/run"
)

// DefaultBus is the address of the system bus if DBUS_SYSTEM_BUS_ADDRESS is not set.
const DefaultBus = "unix:path=/var/run/dbus/system_bus_socket"

// The names of logind on the bus.
const (
	service = "org.freedesktop.login1"
	object  = dbus.ObjectPath("/org/freedesktop/login1")
	manager = service + ".Manager"
	begins  = "PrepareForShutdown"
)

const (
	// callLimit is how long a call to logind may take.
	callLimit = 10 * time.Second
	// firstPause and lastPause bound the pause before logind is tried again. A machine without logind costs one failed
	// connect a minute.
	firstPause, lastPause = 100 * time.Millisecond, time.Minute
	// reloads is how often the delay of logind is read again after its configuration has changed, with pauses from
	// reloadPause on, as upstream has it.
	reloads, reloadPause = 5, 100 * time.Millisecond
)

// An Inhibitor delays shutdowns of the machine. All fields but Log are required.
type Inhibitor struct {
	Bus   string        // D-Bus address of the system bus: unix:path=… or unix:abstract=…
	Delay time.Duration // how long Began may take; logind's own limit is raised to it
	// ConfigFile is the file of logind's configuration in which its limit is raised. Run removes it in the end if it wrote it.
	ConfigFile string
	// Began is called when a shutdown begins, which waits until it returns. Cancelled is called when it was cancelled.
	// One call ends before the next one begins.
	Began     func(context.Context)
	Cancelled func()
	Log       *slog.Logger // nil means slog.Default

	wrote bool
}

// Run holds a lock of logind and follows shutdowns until ctx is cancelled, then returns nil. It waits for a logind that does
// not answer, and follows one that is restarted.
func (i *Inhibitor) Run(ctx context.Context) error {
	if i.Log == nil {
		i.Log = slog.Default()
	}
	defer func() {
		if i.wrote {
			_ = os.Remove(i.ConfigFile)
		}
	}()
	for failures := 0; ctx.Err() == nil; {
		locked, err := i.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if locked {
			failures = 0
		}
		if failures++; failures == 1 {
			i.Log.Warn("shutdowns of the machine do not wait for pods: systemd-logind can't be reached, will try again", "err", err)
		}
		run.Pause(ctx, run.Backoff{First: firstPause, Max: lastPause}.Pause(failures))
	}
	return nil
}

// follow works on one connection. Locked reports whether it held a lock.
func (i *Inhibitor) follow(ctx context.Context) (locked bool, err error) {
	held := &locks{}
	defer held.end()
	conn, err := connect(ctx, i.Bus, held.saw)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	l := login{conn.Object(service, object)}
	signals := make(chan *dbus.Signal, 8)
	conn.Signal(signals)
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err = conn.AddMatchSignalContext(limited, dbus.WithMatchInterface(manager), dbus.WithMatchMember(begins), dbus.WithMatchObjectPath(object))
	if err != nil {
		return false, fmt.Errorf("following shutdowns: %w", err)
	}
	if err := i.raise(ctx, conn, l); err != nil {
		return false, err
	}
	if err := l.inhibit(ctx); err != nil {
		return false, err
	}
	i.Log.Info("shutdowns of the machine wait for pods", "for", i.Delay)
	for {
		var s *dbus.Signal
		var open bool
		select {
		case s, open = <-signals:
		case <-ctx.Done():
			return true, nil
		}
		if !open {
			return true, errors.New("the connection to the system bus is closed")
		}
		begun, is := shutdownOf(s)
		switch {
		case !is:
		case begun:
			i.Began(ctx)
			held.release()
		default:
			held.release()
			i.Cancelled()
			if err := l.inhibit(ctx); err != nil {
				return true, err
			}
		}
	}
}

// shutdownOf returns what a signal says: a shutdown begins, or was cancelled.
func shutdownOf(s *dbus.Signal) (begun, is bool) {
	if s == nil || s.Name != manager+"."+begins || len(s.Body) == 0 {
		return false, false
	}
	begun, is = s.Body[0].(bool)
	return begun, is
}

// raise makes logind wait as long as the pods may take. Its configuration is changed if its limit is lower.
func (i *Inhibitor) raise(ctx context.Context, conn *dbus.Conn, l login) error {
	now, err := l.delay(ctx)
	if err != nil || now >= i.Delay {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(i.ConfigFile), 0o755); err != nil {
		return fmt.Errorf("raising InhibitDelayMaxSec: %w", err)
	}
	text := fmt.Sprintf("# Written by sampan: shutdowns wait for pods.\n[Login]\nInhibitDelayMaxSec=%.0f\n", i.Delay.Seconds())
	i.wrote = true
	if err := os.WriteFile(i.ConfigFile, []byte(text), 0o644); err != nil { // logind's files are public
		return fmt.Errorf("raising InhibitDelayMaxSec: %w", err)
	}
	const hangup = int32(unix.SIGHUP)
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	systemd := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
	if err := systemd.CallWithContext(limited, "org.freedesktop.systemd1.Manager.KillUnit", 0, "systemd-logind.service", "all", hangup).Err; err != nil {
		return fmt.Errorf("having logind read its configuration again: %w", err)
	}
	for n := range reloads {
		run.Pause(ctx, reloadPause<<n)
		if now, err = l.delay(ctx); err != nil || now >= i.Delay {
			return err
		}
	}
	return fmt.Errorf("InhibitDelayMaxSec of logind is still %v, want %v: another file of its configuration may set it", now, i.Delay)
}

// login is the manager object of logind.
type login struct{ dbus.BusObject }

// delay returns how long logind waits at most.
func (l login) delay(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var v dbus.Variant
	err := l.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, manager, "InhibitDelayMaxUSec").Store(&v)
	if err != nil {
		return 0, fmt.Errorf("reading InhibitDelayMaxUSec of logind: %w", err)
	}
	micro, is := v.Value().(uint64)
	if !is {
		return 0, fmt.Errorf("InhibitDelayMaxUSec of logind is a %T, want uint64", v.Value())
	}
	const most = uint64(1<<63-1) / 1000
	return time.Duration(min(micro, most)) * time.Microsecond, nil
}

// inhibit takes a lock. Its descriptor is in the reply, which goes through [locks.saw].
func (l login) inhibit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err := l.CallWithContext(ctx, manager+".Inhibit", 0, "shutdown", "sampan", "The node ends its pods in order", "delay").Err
	if err != nil {
		return fmt.Errorf("taking a lock of logind: %w", err)
	}
	return nil
}

// locks are the descriptors that a connection has received. Each delays shutdowns until it is closed, so also those of replies
// that came too late are kept track of.
type locks struct {
	mu   sync.Mutex
	fds  []int // guarded by mu
	over bool  // guarded by mu; the connection is closed
}

// saw takes the descriptors out of a message. It is called for each message that is received.
func (l *locks) saw(m *dbus.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range m.Body {
		if fd, is := v.(dbus.UnixFD); is {
			l.fds = append(l.fds, int(fd))
		}
	}
	if l.over {
		l.close()
	}
}

func (l *locks) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close()
}

func (l *locks) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.close()
}

// close gives the locks back. The caller holds mu.
func (l *locks) close() {
	for _, fd := range l.fds {
		_ = unix.Close(fd)
	}
	l.fds = nil
}

// connect opens a connection to a bus. A bus that does not answer is an error. Saw is called for each message.
func connect(ctx context.Context, address string, saw func(*dbus.Message)) (*dbus.Conn, error) {
	path, err := socket(address)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(limited, "unix", path)
	if err != nil {
		return nil, err
	}
	cut := context.AfterFunc(limited, func() { _ = c.Close() })
	conn, err := speak(c.(*net.UnixConn), dbus.WithContext(ctx), dbus.WithIncomingInterceptor(saw))
	if !cut() && err == nil {
		err = limited.Err()
		_ = conn.Close()
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("system bus: %w", errors.Join(err, limited.Err()))
	}
	return conn, nil
}

// socket returns the path of the socket of a D-Bus address, of which the first part that names one counts.
func socket(address string) (string, error) {
	for part := range strings.SplitSeq(address, ";") {
		keys, isUnix := strings.CutPrefix(strings.TrimSpace(part), "unix:")
		if !isUnix {
			continue
		}
		for pair := range strings.SplitSeq(keys, ",") {
			key, value, _ := strings.Cut(pair, "=")
			value, err := dbus.UnescapeBusAddressValue(value)
			switch {
			case err != nil || value == "":
			case key == "path":
				return value, nil
			case key == "abstract":
				return "@" + value, nil
			}
		}
	}
	return "", fmt.Errorf("address of the system bus %q: must be unix:path=FILE or unix:abstract=NAME", address)
}
