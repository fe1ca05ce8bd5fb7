package registry

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
	"golang.org/x/sys/unix"
)

// A host is one place from which the images of a registry can be read.
type host struct {
	scheme  string // https or http
	address string // name and port
	path    string // of the API: "/v2" unless configured; no slash at the end

	fallback bool // plain HTTP is used if the host does not speak TLS
	mirror   bool // it is not the registry itself
	resolve  bool // it may be asked for tags
	pull     bool // it may be asked for digests

	ca         []string    // files
	client     [][2]string // files of certificates and keys
	skipVerify bool
	header     http.Header
	dial       time.Duration // 0 means dialTimeout
	rewrites   []rewrite     // in the order of the file; the first one that matches counts

	file string // hosts.toml that configures the host, or would; empty means that no directories are configured
}

// A configuration says where to read images of a registry.
type configuration struct {
	hosts   []host   // in the order in which to try
	file    string   // that it was read from; empty means the default
	ignored []string // keys of the file that have no meaning
}

// A rewrite changes the names of repositories that match a pattern. In the replacement, $1 is the first group of the
// pattern.
type rewrite struct {
	pattern     *regexp.Regexp
	replacement string
}

// repository returns the name that a repository of the registry has at the host.
func (h *host) repository(name string) string {
	for _, r := range h.rewrites {
		if r.pattern.MatchString(name) {
			return r.pattern.ReplaceAllString(name, r.replacement)
		}
	}
	return name
}

// hostEntry is a host in hosts.toml, in containerd's format.
type hostEntry struct {
	Capabilities []string       `toml:"capabilities"`
	CA           any            `toml:"ca"`     // a string or a list of strings
	Client       any            `toml:"client"` // a string, a list of strings or a list of pairs
	SkipVerify   bool           `toml:"skip_verify"`
	Header       map[string]any `toml:"header"` // strings or lists of strings
	OverridePath bool           `toml:"override_path"`
	DialTimeout  string         `toml:"dial_timeout"`

	Rewrite map[string]string `toml:"rewrite"` // by pattern, as in the containerd of K3s
}

// configure returns where to read images of a registry. It reads the first directory for this
// registry, or else the first one for all registries, in the directories of the configuration.
func configure(dirs []string, registry string) (configuration, error) {
	if registry == "" || strings.HasPrefix(registry, ".") || strings.ContainsAny(registry, "/\\") {
		return configuration{}, fmt.Errorf("registry %q: must be the name of a host", registry)
	}
	const all = "_default"
	own := "" // the file of this registry that would come first
	if len(dirs) > 0 {
		own = filepath.Join(dirs[0], registry, hostsFile)
	}
	for _, sub := range []string{registry, strings.Replace(registry, ":", "_", 1) + "_", all} {
		if sub == registry+"_" && !strings.Contains(registry, ":") {
			continue
		}
		for _, dir := range dirs {
			at := filepath.Join(dir, sub)
			if info, err := os.Stat(at); err == nil && info.IsDir() {
				c, err := configured(at, registry)
				for i := range c.hosts {
					if h := &c.hosts[i]; h.mirror || sub != all {
						h.file = filepath.Join(at, hostsFile)
					} else {
						h.file = own
					}
				}
				return c, err
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return configuration{}, fmt.Errorf("configuration of registry %s: %w", registry, err)
			}
		}
	}
	h := standard(registry)
	h.file = own
	return configuration{hosts: []host{h}}, nil
}

// hostsFile is the name of the file with the configuration of a registry.
const hostsFile = "hosts.toml"

// standard returns a registry's own host.
func standard(registry string) host {
	h := host{scheme: "https", address: registry, path: "/v2", resolve: true, pull: true}
	if registry == "docker.io" || registry == "index.docker.io" {
		h.address = "registry-1.docker.io"
	}
	h.fallback = loopback(registry)
	return h
}

func loopback(address string) bool {
	name := address
	if host, _, err := net.SplitHostPort(address); err == nil {
		name = host
	}
	ip, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return name == "localhost" || err == nil && ip.IsLoopback()
}

// configured reads the configuration in a directory: hosts.toml or, without it, certificates as Docker has them.
func configured(dir, registry string) (c configuration, err error) {
	file := filepath.Join(dir, hostsFile)
	text, err := read(file)
	if errors.Is(err, fs.ErrNotExist) {
		c.hosts, err = certificates(dir, registry)
		return c, err
	}
	if err != nil {
		return c, fmt.Errorf("configuration of registry %s: %w", registry, err)
	}
	c.file = file
	if c.hosts, c.ignored, err = parse(string(text), dir, registry); err != nil {
		return c, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// largestFile bounds a file of a configuration.
const largestFile = 1 << 20

// read returns the contents of a file of a configuration. It does not wait for a file that is none, such as a named pipe.
func read(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	if is, err := f.Stat(); err != nil || !is.Mode().IsRegular() {
		return nil, cmp.Or(err, fmt.Errorf("%s: must be a regular file", name))
	}
	data, err := io.ReadAll(io.LimitReader(f, largestFile+1))
	if err == nil && len(data) > largestFile {
		err = fmt.Errorf("%s: must have at most %d bytes", name, largestFile)
	}
	return data, err
}

// certificates returns the registry's own host with the certificates in a directory: *.crt are authorities, NAME.cert and
// NAME.key are client certificates.
func certificates(dir, registry string) ([]host, error) {
	h := standard(registry)
	var err error
	if h.ca, err = filepath.Glob(filepath.Join(dir, "*.crt")); err != nil {
		return nil, err
	}
	certs, err := filepath.Glob(filepath.Join(dir, "*.cert"))
	if err != nil {
		return nil, err
	}
	for _, cert := range certs {
		h.client = append(h.client, [2]string{cert, strings.TrimSuffix(cert, ".cert") + ".key"})
	}
	return []host{h}, nil
}

// A hostsTable is the text of hosts.toml. The keys of hostEntry at its top are those of the server.
type hostsTable struct {
	Server string               `toml:"server"`
	Host   map[string]hostEntry `toml:"host"`
}

// parse reads hosts.toml, and returns the keys that it ignores, as containerd does. Relative names of files are below dir.
func parse(text, dir, registry string) (list []host, ignored []string, err error) {
	var file hostsTable
	var own hostEntry
	meta, err := toml.Decode(text, &file)
	if err != nil {
		return nil, nil, err
	}
	ofServer, err := toml.Decode(text, &own)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range meta.Undecoded() {
		if slices.ContainsFunc(ofServer.Undecoded(), func(k toml.Key) bool { return slices.Equal(k, key) }) {
			ignored = append(ignored, redacted(key.String()))
		}
	}
	list, err = order(file, own, meta.Keys(), dir, registry)
	return list, ignored, err
}

// redacted returns a text without the users and passwords of URLs in it.
func redacted(text string) string {
	return regexp.MustCompile(`//[^/\s]*@`).ReplaceAllString(text, "//***@")
}

// order returns the hosts of hosts.toml, in the order of its keys.
func order(file hostsTable, own hostEntry, keys []toml.Key, dir, registry string) (list []host, err error) {
	seen := map[string]bool{}
	for _, key := range keys {
		const depth = 2 // host.NAME, which may have only tables of its own
		if len(key) < depth || key[0] != "host" || seen[key[1]] {
			continue
		}
		seen[key[1]], key = true, key[:depth]
		h, err := fromURL(key[1], file.Host[key[1]], dir)
		if err != nil {
			return nil, fmt.Errorf("host %q: %w", redacted(key[1]), err)
		}
		h.mirror = true
		if h.rewrites, err = rewrites(keys, key, file.Host[key[1]].Rewrite); err != nil {
			return nil, fmt.Errorf("host %q: %w", redacted(key[1]), err)
		}
		list = append(list, h)
	}
	if file.Server == "" && len(list) > 0 && own.Capabilities == nil && own.CA == nil && own.Client == nil && !own.SkipVerify && own.Header == nil && own.Rewrite == nil {
		return append(list, standard(registry)), nil
	}
	std := standard(registry)
	server := cmp.Or(file.Server, std.scheme+"://"+std.address)
	h, err := fromURL(server, own, dir)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if h.rewrites, err = rewrites(keys, nil, own.Rewrite); err != nil {
		return nil, err
	}
	if file.Server == "" {
		h.fallback = std.fallback
	}
	if h.address == "docker.io" {
		h.address = std.address
	}
	return append(list, h), nil
}

// fromURL returns the host with a URL and its settings.
func fromURL(text string, e hostEntry, dir string) (host, error) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return host{}, errors.New(redacted(err.Error()))
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
		return host{}, errors.New("must be a URL such as https://mirror.example:5000, without user")
	}
	h := host{scheme: u.Scheme, address: u.Host, path: strings.TrimSuffix(path.Clean("/"+u.Path), "/"), skipVerify: e.SkipVerify}
	if !e.OverridePath && !strings.HasSuffix(h.path, "/v2") {
		h.path += "/v2"
	}
	h.resolve, h.pull = e.Capabilities == nil, e.Capabilities == nil
	for _, c := range e.Capabilities {
		switch c {
		case "pull":
			h.pull = true
		case "resolve":
			h.resolve = true
		case "push", "referrers":
		default:
			return host{}, fmt.Errorf("capabilities: must be pull, resolve, push or referrers, got %q", c)
		}
	}
	if e.DialTimeout != "" {
		if h.dial, err = time.ParseDuration(e.DialTimeout); err != nil || h.dial <= 0 {
			return host{}, fmt.Errorf("dial_timeout: must be a duration such as 3s, got %q", e.DialTimeout)
		}
	}
	if h.header, err = headers(e.Header); err != nil {
		return host{}, err
	}
	files, err := texts("ca", e.CA)
	if err != nil {
		return host{}, err
	}
	for _, f := range files {
		h.ca = append(h.ca, below(dir, f))
	}
	h.client, err = pairs(e.Client, dir)
	return h, err
}

// rewrites returns the entries of the table rewrite below a key, in the order of the file.
func rewrites(keys []toml.Key, below toml.Key, entries map[string]string) ([]rewrite, error) {
	var list []rewrite
	table := append(slices.Clone(below), "rewrite")
	for _, key := range keys {
		if len(key) != len(table)+1 || !slices.Equal(key[:len(table)], table) {
			continue
		}
		text := key[len(table)]
		pattern, err := regexp.Compile(text)
		if err != nil {
			return nil, fmt.Errorf("rewrite: must have regular expressions as keys, got %q: %w", text, err)
		}
		list = append(list, rewrite{pattern, entries[text]})
	}
	return list, nil
}

func below(dir, file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(dir, file)
}

// texts reads a value that is a string or a list of strings.
func texts(field string, v any) ([]string, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return []string{v}, nil
	case []any:
		var all []string
		for _, one := range v {
			s, ok := one.(string)
			if !ok {
				return nil, fmt.Errorf("%s: must be a string or a list of strings", field)
			}
			all = append(all, s)
		}
		return all, nil
	default:
		return nil, fmt.Errorf("%s: must be a string or a list of strings", field)
	}
}

// pairs reads the files of client certificates: one file with certificate and key, or pairs of files.
func pairs(v any, dir string) ([][2]string, error) {
	list, isList := v.([]any)
	if !isList {
		list = []any{v}
	}
	if v == nil {
		return nil, nil
	}
	var out [][2]string
	for _, one := range list {
		names, err := texts("client", one)
		if err != nil {
			return nil, err
		}
		switch len(names) {
		case 1:
			out = append(out, [2]string{below(dir, names[0]), below(dir, names[0])})
		case 2: // certificate and key
			key := cmp.Or(names[1], names[0])
			out = append(out, [2]string{below(dir, names[0]), below(dir, key)})
		default:
			return nil, errors.New("client: must be a file, or a list of files or of pairs of files")
		}
	}
	return out, nil
}

func headers(m map[string]any) (http.Header, error) {
	out := http.Header{}
	for name, v := range m {
		values, err := texts("header."+name, v)
		if err != nil {
			return nil, err
		}
		out[http.CanonicalHeaderKey(name)] = values
	}
	return out, nil
}

// tls returns the settings for connections to the host.
func (h *host) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: h.skipVerify} // the administrator's choice
	if len(h.ca) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		for _, file := range h.ca {
			pem, err := read(file)
			if err != nil {
				return nil, fmt.Errorf("certificate authority of %s: %w", h.address, err)
			}
			if !pool.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("certificate authority of %s: %s has no certificate in PEM", h.address, file)
			}
		}
		c.RootCAs = pool
	}
	for _, pair := range h.client {
		cert, err := tls.LoadX509KeyPair(pair[0], pair[1])
		if err != nil {
			return nil, fmt.Errorf("client certificate for %s: %w", h.address, err)
		}
		c.Certificates = append(c.Certificates, cert)
	}
	return c, nil
}

// plain reports whether plain HTTP may be used with the host.
func (h *host) plain() bool { return h.fallback || h.scheme == "http" }
