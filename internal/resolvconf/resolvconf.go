package resolvconf

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sampan-io/sampan/internal/filewatch"
	"github.com/sampan-io/sampan/internal/sorting"
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

// Follow calls set with the addresses of the name servers in [Host] and in more files, ascending and without duplicates, at
// once and whenever they have changed, until ctx is cancelled. It returns an error if the files cannot be watched. Set is
// called on the same goroutine.
func Follow(ctx context.Context, more []string, set func(servers []netip.Addr)) error {
	var last []netip.Addr
	first := true
	return filewatch.Follow(ctx, watched(slices.Concat([]string{File}, behind[:], more)), func() {
		now := Host().Servers
		for _, file := range more {
			now = append(now, Read(file).Servers...)
		}
		if servers := addresses(now); first || !slices.Equal(servers, last) {
			first, last = false, servers
			set(servers)
		}
	})
}

func addresses(texts []string) (servers []netip.Addr) {
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			servers = append(servers, a.Unmap())
		}
	}
	sorting.Slice(servers, netip.Addr.Compare)
	return slices.Compact(servers)
}

// watched returns files, and the files to which they are links, as far as their directories exist: those of programs that
// do not run need not.
func watched(files []string) (there []string) {
	for _, file := range files {
		for _, path := range []string{file, target(file)} {
			if info, err := os.Stat(filepath.Dir(path)); err == nil && info.IsDir() && !slices.Contains(there, path) {
				there = append(there, path)
			}
		}
	}
	return there
}

func target(file string) string {
	if path, err := filepath.EvalSymlinks(file); err == nil {
		return path
	}
	return file
}

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
