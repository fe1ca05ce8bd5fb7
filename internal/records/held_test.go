package records

import (
	"crypto/tls"
	"errors"
	"net"
	"testing"
)

// TestWritesAndTheEndTakeTurns looks at the lock: nothing shows that a goroutine waits for one.
func TestWritesAndTheEndTakeTurns(t *testing.T) {
	var h *Held
	var inTurn []bool
	look := func() {
		free := h.turn.TryLock()
		if free {
			h.turn.Unlock()
		}
		inTurn = append(inTurn, !free)
	}
	h = NewHeld(func(p []byte) (int, error) {
		look()
		return len(p), nil
	})
	if err := h.Together(func() error {
		_, err := h.Write([]byte("x")) // sent after this function
		return err
	}); err != nil {
		t.Error(err)
	}
	if err := h.Alone(func() error {
		look()
		return nil
	}); err != nil {
		t.Error(err)
	}
	if len(inTurn) != 2 || !inTurn[0] || !inTurn[1] {
		t.Errorf("in turn: %t; want the bytes that waited, and the end", inTurn)
	}
}

// A lonely socket refuses to do anything alone.
type lonely struct {
	net.Conn
	*Held
}

var errLonely = errors.New("alone")

func (lonely) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }
func (lonely) Alone(func() error) error  { return errLonely }

func TestTheEndIsAlone(t *testing.T) {
	if err := CloseWrite(tls.Client(lonely{}, &tls.Config{ServerName: "example.com"})); !errors.Is(err, errLonely) {
		t.Errorf("CloseWrite: %v; want that of the socket", err)
	}
}
