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
// has a socket of its own, with a port that cannot be guessed.
func exchange(ctx context.Context, server netip.AddrPort, m *dns.Msg) (*dns.Msg, error) {
	reply, err := exchangeOver(ctx, "udp", server, m)
	if err == nil && reply.Truncated {
		return exchangeOver(ctx, "tcp", server, m)
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
		if err := reply.Unpack(p); err != nil {
			if network == "tcp" || reply.Id != m.Id {
				if network == "tcp" {
					return nil, fmt.Errorf("its answer: %w", err)
				}
				continue
			}
			return nil, fmt.Errorf("its answer: %w", err)
		}
		if answers(reply, m) {
			return reply, nil
		}
		if network == "tcp" {
			return nil, fmt.Errorf("it answered another question")
		}
	}
}

// answers reports whether a message is the answer to a question.
func answers(reply, m *dns.Msg) bool {
	if !reply.Response || reply.Id != m.Id || reply.Opcode != dns.OpcodeQuery || len(reply.Question) != 1 {
		return false
	}
	a, b := reply.Question[0], m.Question[0]
	return a.Qtype == b.Qtype && a.Qclass == b.Qclass && strings.EqualFold(a.Name, b.Name)
}
