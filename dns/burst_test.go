package dns

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
)

// TestABurstOfQuestionsHasRoom sends thousands of questions while the server does not read.
func TestABurstOfQuestionsHasRoom(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the room that anybody may have is the host's to say")
	}
	s, err := Listen(t.Context(), &net.ListenConfig{}, netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := net.Dial("udp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const questions = 5000
	question := make([]byte, 60)
	for range questions {
		if _, err := c.Write(question); err != nil {
			t.Fatal(err)
		}
	}
	// On loopback what was sent has come; what was lost is waited for in vain.
	if err := s.udp[0].SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for n := range questions {
		if _, err := s.udp[0].Read(question); err != nil {
			t.Fatalf("question %d of %d: %v", n+1, questions, err)
		}
	}
}
