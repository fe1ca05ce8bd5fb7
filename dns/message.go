package dns

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/sampan-io/sampan/dns/forward"
	"github.com/sampan-io/sampan/dns/zone"
	"github.com/sampan-io/sampan/internal/run"
)

// A transport is UDP or TCP.
type transport int

const (
	overUDP transport = iota
	overTCP
)

func (t transport) String() string { return [...]string{"udp", "tcp"}[t] }

// maxUDP is the longest answer over UDP, in bytes, even if the client can receive more: fragments
// get lost and can be forged (RFC 9715).
const maxUDP = 1232

// A worker answers one question at a time, and reuses its memory.
type worker struct {
	server *Server
	over   transport
	family int // of the address that was asked, see familyOf
	began  time.Time
	length int // of the question, in bytes
	turn   uint32

	in, out dns.Msg
	found   zone.Answer
	opt     dns.OPT
	packed  []byte
}

func newWorker(s *Server, over transport) *worker {
	// Four times the longest answer over UDP: the library needs the space before it compresses
	// names. It allocates more for longer answers.
	return &worker{server: s, over: over, turn: rand.Uint32(), packed: make([]byte, 4*maxUDP)}
}

// answer returns the answer to a message, which is valid until the next call, or nil if there is
// none. If more is true the question must be forwarded: answer has reserved a slot of the
// forwarder, and [worker.ask] uses it.
func (w *worker) answer(packet []byte) (reply []byte, more bool) {
	if !run.Shield(w.server.opts.Log, func() { reply, more = w.answerNow(packet) }) {
		return nil, false
	}
	return reply, more
}

func (w *worker) answerNow(packet []byte) (reply []byte, more bool) {
	w.began = time.Now()
	if refusal, ok := w.read(packet); !ok {
		return refusal, false
	}
	return w.respond(nil, nil, false)
}

// ask returns the answer to a message for which answer returned more, from upstream servers.
func (w *worker) ask(ctx context.Context, packet []byte) (reply []byte) {
	if !run.Shield(w.server.opts.Log, func() { reply = w.askOthers(ctx, packet) }) {
		return nil
	}
	return reply
}

func (w *worker) askOthers(ctx context.Context, packet []byte) []byte {
	if w.began.IsZero() {
		w.began = time.Now()
	}
	if refusal, ok := w.read(packet); !ok {
		return refusal
	}
	q := w.in.Question[0]
	name := q.Name
	if ours := w.server.zone.Answer(w.question(), &w.found); ours {
		name = w.found.Chase
	}
	m, err := w.server.upstream.Ask(ctx, w.forwarded(name))
	if ctx.Err() != nil {
		return nil
	}
	reply, _ := w.respond(m, err, true)
	return reply
}

// read parses a message. If ok is false the message is not processed further, and refusal, which
// may be nil, is the answer.
func (w *worker) read(packet []byte) (refusal []byte, ok bool) {
	const header = 12
	if len(packet) < header || packet[2]&0x80 != 0 {
		return nil, false // answering an answer could loop for ever
	}
	w.length = len(packet)
	w.out = dns.Msg{Answer: w.out.Answer[:0], Ns: w.out.Ns[:0], Extra: w.out.Extra[:0], Question: w.out.Question[:0]}
	err := w.in.Unpack(packet)
	w.out.Id, w.out.Opcode, w.out.Response = w.in.Id, w.in.Opcode, true
	w.out.RecursionDesired, w.out.CheckingDisabled, w.out.RecursionAvailable = w.in.RecursionDesired, w.in.CheckingDisabled, true
	switch {
	case err != nil:
		// The fields that were parsed before the error are not reliable.
		w.out.Opcode = int(packet[2]>>3) & 0xf
		w.in.Question, w.in.Extra = nil, nil
		return w.fail(dns.RcodeFormatError, 0, ""), false
	case w.in.Opcode != dns.OpcodeQuery:
		if len(w.in.Question) == 1 {
			w.out.Question = append(w.out.Question, w.in.Question[0])
		}
		return w.fail(dns.RcodeNotImplemented, 0, ""), false
	case len(w.in.Question) != 1:
		w.in.Question = nil
		return w.fail(dns.RcodeFormatError, 0, ""), false
	}
	w.out.Question = append(w.out.Question, w.in.Question[0])
	extensions := 0
	for _, r := range w.in.Extra {
		if r.Header().Rrtype == dns.TypeOPT {
			extensions++
		}
	}
	q := w.in.Question[0]
	switch {
	case extensions > 1: // RFC 6891, 6.1.1
		w.in.Extra = nil
		return w.fail(dns.RcodeFormatError, 0, ""), false
	case extensions == 1 && w.in.IsEdns0().Version() != 0:
		return w.fail(dns.RcodeBadVers, 0, ""), false
	case q.Qclass != dns.ClassINET:
		return w.fail(dns.RcodeRefused, dns.ExtendedErrorCodeNotSupported, "only class IN is answered"), false
	case q.Qtype == dns.TypeAXFR || q.Qtype == dns.TypeIXFR || q.Qtype == dns.TypeMAILA || q.Qtype == dns.TypeMAILB:
		return w.fail(dns.RcodeRefused, dns.ExtendedErrorCodeNotSupported, "zones are not transferred"), false
	case q.Qtype == dns.TypeOPT || q.Qtype == dns.TypeTSIG || q.Qtype == dns.TypeTKEY:
		return w.fail(dns.RcodeFormatError, 0, ""), false
	}
	return nil, true
}

func (w *worker) question() zone.Question {
	w.turn++
	return zone.Question{Name: w.in.Question[0].Name, Type: w.in.Question[0].Qtype, Room: w.room(), Turn: w.turn}
}

// forwarded returns the question to forward for a name.
func (w *worker) forwarded(name string) forward.Question {
	opt := w.in.IsEdns0()
	return forward.Question{
		Name: strings.ToLower(name), Type: w.in.Question[0].Qtype,
		DNSSEC: opt != nil && opt.Do(), Checking: w.in.CheckingDisabled,
	}
}

// room returns how long the answer may be, in bytes.
func (w *worker) room() int {
	if w.over == overTCP {
		return dns.MaxMsgSize
	}
	if opt := w.in.IsEdns0(); opt != nil {
		return min(max(int(opt.UDPSize()), dns.MinMsgSize), maxUDP)
	}
	return dns.MinMsgSize
}

// respond answers the question that was read. If asked is true, msg and err are the result from
// upstream.
func (w *worker) respond(msg *dns.Msg, err error, asked bool) (reply []byte, more bool) {
	s := w.server
	q := w.question()
	ours := s.zone.Answer(q, &w.found)
	select {
	case <-s.complete:
	default:
		if ours && w.found.Rcode == dns.RcodeNameError { // dns-D4
			return w.fail(dns.RcodeServerFailure, dns.ExtendedErrorCodeNotReady, "the cluster's names are not known yet: the API server has not been reached"), false
		}
	}
	if ours && (w.found.Chase == "" || !w.in.RecursionDesired) {
		return w.finish(), false
	}
	name := q.Name
	switch {
	case ours:
		name = w.found.Chase
	case s.upstream.Looped(name, q.Type):
		return w.fail(dns.RcodeServerFailure, dns.ExtendedErrorCodeOther, "forwarding loop: the question came back to this server"), false
	case !w.in.RecursionDesired:
		return w.fail(dns.RcodeRefused, dns.ExtendedErrorCodeNotAuthoritative, "not a name of this cluster, and recursion is not desired"), false
	case q.Type == dns.TypeANY:
		w.out.Answer = append(w.out.Answer, &dns.HINFO{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeHINFO, Class: dns.ClassINET, Ttl: 3600}, Cpu: "RFC8482"})
		return w.pack(), false
	}
	if !asked {
		var known bool
		if msg, err, known = s.upstream.Cached(w.forwarded(name)); !known {
			if s.upstream.Reserve() {
				return nil, true
			}
			err = forward.ErrBusy
		}
	}
	return w.relay(name, msg, err), false
}

// finish packs the zone's answer.
func (w *worker) finish() []byte {
	w.out.Authoritative, w.out.Rcode = true, w.found.Rcode
	w.out.Answer = append(w.out.Answer, w.found.Records...)
	w.out.Ns = append(w.out.Ns, w.found.Authority...)
	w.out.Extra = append(w.out.Extra, w.found.Extra...)
	return w.pack()
}

// relay packs the upstream answer for a name, after the alias of ours that led there.
func (w *worker) relay(name string, msg *dns.Msg, err error) []byte {
	w.out.Authoritative = len(w.found.Records) > 0
	w.out.Answer = append(w.out.Answer, w.found.Records...)
	if err != nil {
		code := dns.ExtendedErrorCodeNoReachableAuthority
		var missing *forward.MissingError
		switch {
		case errors.As(err, &missing):
			code = dns.ExtendedErrorCodeNetworkError
		case errors.Is(err, forward.ErrBusy):
			code = dns.ExtendedErrorCodeOther
		}
		return w.fail(dns.RcodeServerFailure, code, err.Error())
	}
	w.out.Rcode, w.out.Truncated = msg.Rcode, msg.Truncated
	dnssec := w.forwarded(name).DNSSEC
	for _, r := range msg.Answer {
		w.out.Answer = append(w.out.Answer, renamed(r, name))
	}
	for _, r := range msg.Ns {
		if t := r.Header().Rrtype; t == dns.TypeSOA || dnssec {
			w.out.Ns = append(w.out.Ns, r)
		}
	}
	// AD is only for clients that understand it (RFC 6840, 5.7).
	w.out.AuthenticatedData = msg.AuthenticatedData && len(w.found.Records) == 0 && (dnssec || w.in.AuthenticatedData)
	return w.pack()
}

// renamed returns a record with the name as it was asked for, so that it has the letter case that
// the client expects.
func renamed(r dns.RR, name string) dns.RR {
	if h := r.Header(); h.Name == name || !strings.EqualFold(h.Name, name) {
		return r
	}
	r = dns.Copy(r) // it is shared
	r.Header().Name = name
	return r
}

// maxText is the largest length of an error text: it must fit into the shortest answer.
const maxText = 200

// fail packs an error, with an extended error and text if code is not 0.
func (w *worker) fail(rcode int, code uint16, text string) []byte {
	w.out.Rcode = rcode
	w.opt.Option = w.opt.Option[:0]
	if text != "" {
		w.opt.Option = append(w.opt.Option, &dns.EDNS0_EDE{InfoCode: code, ExtraText: strings.ToValidUTF8(text[:min(len(text), maxText)], "")})
	}
	reply := w.pack()
	w.opt.Option = w.opt.Option[:0]
	return reply
}

// pack makes the answer fit, and counts it.
func (w *worker) pack() []byte {
	rcode := w.out.Rcode
	room := w.room()
	if asked := w.in.IsEdns0(); asked != nil {
		w.opt.Hdr = dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}
		w.opt.SetUDPSize(maxUDP)
		w.opt.SetDo(asked.Do())
		w.opt.SetExtendedRcode(uint16(rcode))
		w.out.Extra = append(w.out.Extra, &w.opt)
	} else if rcode > 0xf {
		rcode = dns.RcodeServerFailure
		w.out.Rcode = rcode
	}
	w.out.Compress = true
	reply, err := w.out.PackBuffer(w.packed)
	if err == nil && len(reply) > room {
		w.shorten(room)
		reply, err = w.out.PackBuffer(w.packed)
	}
	if err != nil {
		w.server.opts.Log.Error("packing an answer", "question", w.out.Question, "err", err)
		w.out.Answer, w.out.Ns, w.out.Extra = nil, nil, nil
		w.out.Rcode = dns.RcodeServerFailure
		if reply, err = w.out.PackBuffer(w.packed); err != nil {
			return nil
		}
	}
	w.server.count.observe(w, rcode, len(reply))
	return reply
}

// shorten makes the answer fit. The additional section was not asked for and can be dropped without
// the TC bit (RFC 2181, 9).
func (w *worker) shorten(room int) {
	extra := w.out.Extra
	w.out.Extra = nil
	if opt := w.in.IsEdns0(); opt != nil {
		w.out.Extra = extra[len(extra)-1:]
	}
	w.out.Truncate(room)
	w.out.Compress = true
}
