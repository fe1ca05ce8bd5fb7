package resolvconf

import (
	"net/netip"
	"os"
	"strings"
)

// A Config is the content of a resolver configuration.
type Config struct {
	Servers, Searches, Options []string
}

// Parse reads a resolv.conf. Stub reports whether leaving out servers on the loopback
// network left none although there were some.
func Parse(text string) (c Config, stub bool) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "nameserver":
			if a, err := netip.ParseAddr(words[1]); err == nil && a.Unmap().IsLoopback() {
				stub = true
				continue
			}
			c.Servers = append(c.Servers, words[1])
		case "search":
			c.Searches = words[1:] // the last one counts
			for i, s := range c.Searches {
				if s != "." {
					c.Searches[i] = strings.TrimSuffix(s, ".") // musl's resolver takes it for a part of the name
				}
			}
		case "domain":
			c.Searches = words[1:2]
		case "options":
			c.Options = append(c.Options, words[1:]...)
		}
	}
	return c, stub && len(c.Servers) == 0
}

// File says which name servers the host uses.
const File = "/etc/resolv.conf"

// behind are where stub resolvers on the loopback address keep whom they ask themselves:
// systemd-resolved, and dnsmasq as NetworkManager runs it.
var behind = [...]string{"/run/systemd/resolve/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf"}

// Host returns the configuration of this host as it is now. A host without one resolves
// nothing.
func Host() Config { return first(File, behind[:]) }

// first returns the configuration in file. If that has only stub resolvers it returns the one of
// the first file in behind.
func first(file string, behind []string) Config {
	c, stub := read(file)
	if stub {
		for _, path := range behind {
			if real, _ := read(path); len(real.Servers) > 0 {
				return real
			}
		}
	}
	return c
}

// Read returns what a file says, or nothing if there is none.
func Read(path string) Config {
	c, _ := read(path)
	return c
}

func read(path string) (Config, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, false
	}
	return Parse(string(b))
}
