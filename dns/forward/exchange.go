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

// maxUDP is the longest answer over UDP, in bytes: longer ones could be fragmented, and fragments
// get lost and can be forged (RFC 9715).
const maxUDP = 1232

// exchange asks a server over UDP, and over TCP if the answer is truncated. Each question has a
// separate socket, with an unpredictable port. If TCP fails it returns the truncated answer.
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
		// Messages that do not answer this question may be forged, and are ignored.
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
			return reply, nil // truncated within a record
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
		// A server that rejects the format need not repeat the question.
		return reply.Rcode == dns.RcodeFormatError || reply.Rcode == dns.RcodeNotImplemented
	}
	if len(reply.Question) != 1 {
		return false
	}
	a, b := reply.Question[0], m.Question[0]
	return a.Qtype == b.Qtype && a.Qclass == b.Qclass && strings.EqualFold(a.Name, b.Name)
}
