package container

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moby/sys/capability"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// defaultCaps are the capabilities of a container's process unless its spec sets others:
// enough for package managers and servers, none that affects the host.
func defaultCaps() []string {
	return []string{
		"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
		"CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
	}
}

// capabilities applies what s adds and drops: first ALL, then names, dropping
// last, as Kubernetes defines it. Of a privileged container only the capabilities
// that this process has itself are asked for.
func capabilities(s *Spec) (*specs.LinuxCapabilities, error) {
	all, err := knownCaps()
	if err != nil {
		return nil, err
	}
	set := defaultCaps()
	if s.Privileged || slices.ContainsFunc(s.AddCaps, isAll) {
		set = all
	}
	if slices.ContainsFunc(s.DropCaps, isAll) {
		set = nil
	}
	canonical := func(name string) (string, error) {
		full := strings.ToUpper(name)
		if !strings.HasPrefix(full, "CAP_") {
			full = "CAP_" + full
		}
		if !slices.Contains(capNames(), full) {
			return "", fmt.Errorf("capability %q is not known", name)
		}
		return full, nil
	}
	var ambient []string
	for _, name := range slices.Concat(s.AddCaps, s.AmbientCaps) {
		if isAll(name) {
			continue
		}
		full, err := canonical(name)
		if err != nil {
			return nil, err
		}
		set = append(slices.Clone(set), full)
	}
	for _, name := range s.DropCaps {
		if isAll(name) {
			continue
		}
		full, err := canonical(name)
		if err != nil {
			return nil, err
		}
		set = slices.DeleteFunc(slices.Clone(set), func(c string) bool { return c == full })
	}
	// A capability that this process lacks cannot be given; libcontainer would fail late and
	// not name it.
	set = slices.DeleteFunc(slices.Clone(set), func(c string) bool { return !slices.Contains(all, c) })
	slices.Sort(set)
	set = slices.Compact(set)
	for _, name := range s.AmbientCaps {
		if full, err := canonical(name); err == nil && slices.Contains(set, full) {
			ambient = append(ambient, full)
		}
	}
	out := &specs.LinuxCapabilities{Bounding: set, Permitted: set, Effective: set}
	if ambient != nil {
		out.Ambient, out.Inheritable = ambient, ambient
	}
	return out, nil
}

func isAll(name string) bool {
	return strings.EqualFold(name, "ALL") || strings.EqualFold(name, "CAP_ALL")
}

// capNames are the names that this program knows.
func capNames() []string {
	var names []string
	for _, c := range capability.ListKnown() {
		names = append(names, "CAP_"+strings.ToUpper(c.String()))
	}
	return names
}

// knownCaps are the capabilities that this process could hand on: those of its
// bounding set.
func knownCaps() ([]string, error) {
	own, err := capability.NewPid2(0)
	if err != nil {
		return nil, fmt.Errorf("own capabilities: %w", err)
	}
	if err := own.Load(); err != nil {
		return nil, fmt.Errorf("own capabilities: %w", err)
	}
	var names []string
	for _, c := range capability.ListKnown() {
		if own.Get(capability.BOUNDING, c) && own.Get(capability.PERMITTED, c) {
			names = append(names, "CAP_"+strings.ToUpper(c.String()))
		}
	}
	return names, nil
}
