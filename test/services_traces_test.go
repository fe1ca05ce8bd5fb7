package test

import (
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/test/hosts"
)

// TestAProxyLeavesNoTrace starts proxies on a node with rules of others, has them do all that they can, and
// ends them: as they are to be ended, or by force and with --cleanup.
func TestAProxyLeavesNoTrace(t *testing.T) {
	w := newServicesWorld(t)
	w.withStandIn()
	all := table()
	for i := range all {
		w.create(&all[i])
	}
	keeps := &service{name: "keeps", number: 101, userspace: true, nodePort: true, members: members("pod1a", "pod2a")}
	o := keeps.object(w.World, 2)
	o.Annotations["sampan.dev/keep-client-address"] = "true"
	w.post(o)
	for f := range 2 {
		w.postSlice(keeps.slice(w.World, f))
	}
	n := w.Nodes[0]
	for _, c := range []string{
		"nft add table inet others; add chain inet others in { type filter hook input priority 5; }; add rule inet others in tcp dport 22 accept",
		"nft add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }; add rule ip nat post ip daddr 203.0.113.0/24 masquerade",
		"ip rule add from 203.0.113.7 lookup 77", "ip route add 203.0.113.0/24 via 192.168.7.254 table 77",
	} {
		program, args, _ := strings.Cut(c, " ")
		words := []string{args}
		if program == "ip" {
			words = strings.Fields(args)
		}
		if out, err := n.Output(program, words...); err != nil {
			t.Fatalf("%s: %v: %s", c, err, out)
		}
	}
	before := traces(t, n.Host)
	for _, end := range []string{"SIGTERM", "SIGKILL and --cleanup", "SIGKILL, another one and SIGTERM", "--keep-rules, SIGTERM and --cleanup"} {
		t.Run(end, func(t *testing.T) {
			var args []string
			if strings.HasPrefix(end, "--keep-rules") {
				args = []string{"--keep-rules"}
			}
			p := w.startProxy(0, args...)
			w.caughtUp()
			at := netip.AddrPortFrom(n.IP[0], keeps.nodePorts())
			for range 4 {
				if _, err := w.Client.Ask("tcp", at, patient); err != nil {
					t.Error(err)
				}
			}
			if maps.Equal(traces(t, n.Host), before) {
				t.Error("a proxy that works leaves no trace: this test sees nothing")
			}
			switch end {
			case "SIGTERM":
				if err := p.Stop(); err != nil {
					t.Errorf("%v\n%s", err, p.Said())
				}
			case "SIGKILL and --cleanup", "--keep-rules, SIGTERM and --cleanup":
				if args == nil {
					p.Kill()
				} else if err := p.Stop(); err != nil {
					t.Errorf("%v\n%s", err, p.Said())
				}
				if out, err := n.Output(sampanProgram, "proxy", "--cleanup"); err != nil {
					t.Errorf("sampan proxy --cleanup: %v: %s", err, out)
				}
			default:
				p.Kill()
				p = w.startProxy(0)
				w.caughtUp()
				if err := p.Stop(); err != nil {
					t.Errorf("%v\n%s", err, p.Said())
				}
			}
			after := traces(t, n.Host)
			for _, name := range slices.Sorted(maps.Keys(after)) {
				if after[name] != before[name] {
					t.Errorf("%s: before\n%s\nand after\n%s", name, before[name], after[name])
				}
			}
			for name := range before {
				if _, ok := after[name]; !ok {
					t.Errorf("%s is gone", name)
				}
			}
		})
	}
}

// volatile are parameters that count, or start something when they are written.
var volatile = regexp.MustCompile(`nf_conntrack_count|/route/flush|use_tempaddr|stable_secret|/neigh/.*retrans_time$|base_reachable_time$`)

// traces is what a host has in the kernel that a proxy might change.
func traces(t *testing.T, h *hosts.Host) map[string]string {
	t.Helper()
	seen := map[string]string{}
	for _, c := range []string{
		"nft list ruleset", "ip -o link", "ip -o addr", "ip route show table all", "ip -6 route show table all", "ip rule", "ip -6 rule", "ip -o maddr",
	} {
		words := strings.Fields(c)
		out, err := h.Output(words[0], words[1:]...)
		if err != nil {
			t.Fatalf("%s: %v: %s", c, err, out)
		}
		seen[c] = regexp.MustCompile(`(valid_lft|preferred_lft|expires) \w+`).ReplaceAllString(out, "")
	}
	err := h.Do(func() error {
		return filepath.WalkDir("/proc/sys/net", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || volatile.MatchString(path) {
				return err
			}
			if b, err := os.ReadFile(path); err == nil { // some can only be written
				seen[path] = string(b)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) < 100 {
		t.Fatalf("only %d parameters were found", len(seen))
	}
	return seen
}
