package hostfirewall_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/node/hostfirewall"
)

func TestFind(t *testing.T) {
	const through, here = "packets that pods send or receive through this host", "packets from pods to this host (cluster DNS, the API server)"
	forward := hostfirewall.Chain{Family: "ip", Table: "filter", Name: "FORWARD", Forward: true, Drops: true}
	input := hostfirewall.Chain{Family: "inet", Table: "firewall", Name: "in", Drops: true}
	with := func(c hostfirewall.Chain, in, out []string) hostfirewall.Chain { c.In, c.Out = in, out; return c }
	open := forward
	open.Drops = false
	for name, c := range map[string]struct {
		chain hostfirewall.Chain
		want  string
	}{
		"policy accept": {open, ""},
		"forward":       {forward, "chain FORWARD of the nftables table ip filter drops " + through + "; to let them pass: iptables -I FORWARD -i spn-x -j ACCEPT && iptables -I FORWARD -o spn-x -j ACCEPT"},
		"in is let":     {with(forward, []string{"spn-x"}, nil), "chain FORWARD of the nftables table ip filter drops " + through + "; to let them pass: iptables -I FORWARD -o spn-x -j ACCEPT"},
		"both are let":  {with(forward, []string{"spn-x"}, []string{"spn-*"}), ""},
		"of another":    {with(forward, []string{"spn-y"}, []string{"spn-y"}), "chain FORWARD of the nftables table ip filter drops " + through + "; to let them pass: iptables -I FORWARD -i spn-x -j ACCEPT && iptables -I FORWARD -o spn-x -j ACCEPT"},
		"input":         {input, "chain in of the nftables table inet firewall drops " + here + "; to let them pass: nft insert rule inet firewall in iifname spn-x accept"},
		"input is let":  {with(input, []string{"spn-x"}, nil), ""},
	} {
		if got := strings.Join(hostfirewall.Find([]hostfirewall.Chain{c.chain}, "spn-x"), "\n"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The commands of the messages end what the messages are about.
func TestCommandsHelp(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		sh := func(command string) {
			t.Helper()
			if out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", command, err, out)
			}
		}
		find := func() []string {
			t.Helper()
			chains, err := hostfirewall.Read(func(table string) bool { return table == "own" })
			if err != nil {
				t.Fatal(err)
			}
			return hostfirewall.Find(chains, "spn-x")
		}
		load := func(rules string) {
			t.Helper()
			sh("nft -f - <<'END'\n" + rules + "\nEND")
		}
		load(`
table inet own {
	chain f { type filter hook forward priority 0; policy drop; }
}
table inet open {
	chain f { type filter hook forward priority 0; policy accept; }
	chain o { type filter hook output priority 0; policy drop; }
}`)
		if got := find(); len(got) != 0 {
			t.Errorf("found %q, want nothing", got)
		}
		load(`
table inet wall {
	chain f {
		type filter hook forward priority 0; policy drop;
		tcp dport 22 accept
		iifname "spn-x" tcp dport 80 accept
	}
	chain i {
		type filter hook input priority 0; policy drop;
		ct state established accept
		iifname "lo" accept
	}
}
table ip6 six {
	chain i {
		type filter hook input priority 0; policy drop;
		iifname "spn-*" counter accept
	}
}`)
		got := find()
		if len(got) != 2 {
			t.Fatalf("found %q, want the chains f and i of table wall", got)
		}
		for _, text := range got {
			_, commands, _ := strings.Cut(text, "to let them pass: ")
			sh(commands)
		}
		if left := find(); len(left) != 0 {
			t.Errorf("after the commands: %q", left)
		}
	})
}
