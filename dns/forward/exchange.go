package forward

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// maxUDP is what an answer over UDP may have, in bytes: more could be sent in fragments,
// which get lost and can be forged (RFC 9715).
const maxUDP = 1232

// exchange asks a server over UDP, and over TCP if the answer is longer. Each question
// has a socket of its own, with a port that cannot be guessed. Of a server that can't be
// asked over TCP the answer is as short as it was.
func exchange(ctx context.Context, server netip.AddrPort, m *dns.Msg) (*dns.Msg, error) {
	reply, err := exchangeOver(ctx, "udp", server, m)
	if err == nil && reply.Truncated {
		if whole, err := exchangeOver(ctx, "tcp", server, m); err == nil {
			return whole, nil
		}
	}
	return reply, err
}

func exchangeOver(ctx context.Context, network string, server netip.AddrPort, m *dns.Msg) (*dns.Msg, error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn := &dns.Conn{Conn: raw, UDPSize: maxUDP}
	defer conn.Close()
	if err := conn.WriteMsg(m); err != nil {
		return nil, err
	}
	for {
		// What is no answer to this question may be forged, and is not looked at.
		p, err := conn.ReadMsgHeader(nil)
		if err != nil {
			return nil, err
		}
		reply := new(dns.Msg)
		err = reply.Unpack(p)
		switch {
		case err == nil && answers(reply, m):
			return reply, nil
		case err != nil && reply.Truncated && answers(reply, m):
			return reply, nil // cut in the middle of a record
		case err != nil && (network == "tcp" || reply.Id == m.Id):
			return nil, fmt.Errorf("its answer: %w", err)
		}
		if network == "tcp" {
			return nil, fmt.Errorf("it answered another question")
		}
	}
}

// answers reports whether a message is the answer to a question.
func answers(reply, m *dns.Msg) bool {
	if !reply.Response || reply.Id != m.Id || reply.Opcode != dns.OpcodeQuery {
		return false
	}
	if len(reply.Question) == 0 {
		// Who does not understand a question need not repeat it.
		return reply.Rcode == dns.RcodeFormatError || reply.Rcode == dns.RcodeNotImplemented
	}
	if len(reply.Question) != 1 {
		return false
	}
	a, b := reply.Question[0], m.Question[0]
	return a.Qtype == b.Qtype && a.Qclass == b.Qclass && strings.EqualFold(a.Name, b.Name)
}
