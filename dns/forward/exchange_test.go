package forward

import (
	"testing"

	"github.com/miekg/dns"
)

// TestWhatIsAnAnswer is about messages that came from the right address to the right port.
func TestWhatIsAnAnswer(t *testing.T) {
	m := Question{Name: "www.example.", Type: dns.TypeA}.message(true)
	for _, tt := range []struct {
		name   string
		change func(r *dns.Msg)
		want   bool
	}{
		{"an answer", func(*dns.Msg) {}, true},
		{"with letters of another case", func(r *dns.Msg) { r.Question[0].Name = "WWW.example." }, true},
		{"another ID", func(r *dns.Msg) { r.Id++ }, false},
		{"a question", func(r *dns.Msg) { r.Response = false }, false},
		{"another opcode", func(r *dns.Msg) { r.Opcode = dns.OpcodeNotify }, false},
		{"another name", func(r *dns.Msg) { r.Question[0].Name = "www.example.com." }, false},
		{"another type", func(r *dns.Msg) { r.Question[0].Qtype = dns.TypeAAAA }, false},
		{"another class", func(r *dns.Msg) { r.Question[0].Qclass = dns.ClassCHAOS }, false},
		{"two questions", func(r *dns.Msg) { r.Question = append(r.Question, r.Question[0]) }, false},
		{"no question", func(r *dns.Msg) { r.Question = nil }, false},
		{"no question, and an answer", func(r *dns.Msg) { r.Question, r.Rcode = nil, dns.RcodeNameError }, false},
		{"no question, because it was not understood", func(r *dns.Msg) { r.Question, r.Rcode = nil, dns.RcodeFormatError }, true},
		{"no question, because it is not implemented", func(r *dns.Msg) { r.Question, r.Rcode = nil, dns.RcodeNotImplemented }, true},
	} {
		r := new(dns.Msg).SetReply(m)
		tt.change(r)
		if got := answers(r, m); got != tt.want {
			t.Errorf("%s: answers is %t, want %t", tt.name, got, tt.want)
		}
	}
}
