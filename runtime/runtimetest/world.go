package runtimetest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/sampan-io/sampan/internal/netdump"
)

// World describes what a runtime could leave behind: mounts, links, routes, nftables
// tables, settings, and cgroups with the given name. Compare it before and after.
func World(cgroup string) (string, error) {
	var lines []string
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		lines = append(lines, "mount "+strings.TrimSpace(line))
	}
	links, err := netdump.Whole(netlink.LinkList)
	if err != nil {
		return "", err
	}
	for _, l := range links {
		lines = append(lines, "link "+l.Attrs().Name)
	}
	routes, err := netdump.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return "", err
	}
	for _, r := range routes {
		if r.Dst != nil && r.Dst.IP.IsLinkLocalUnicast() {
			continue // the kernel has it as long as the link, and adds it when it likes
		}
		lines = append(lines, "route "+r.String())
	}
	c, err := nftables.New()
	if err != nil {
		return "", err
	}
	tables, err := c.ListTables()
	if err != nil {
		return "", err
	}
	for _, t := range tables {
		family := map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6"}[t.Family]
		lines = append(lines, "table "+family+" "+t.Name)
	}
	for name, file := range map[string]string{"ip_forward": "ipv4/ip_forward", "ip6_forward": "ipv6/conf/all/forwarding"} {
		forward, err := os.ReadFile("/proc/sys/net/" + file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		lines = append(lines, name+" "+strings.TrimSpace(string(forward)))
	}
	err = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), cgroup) {
			lines = append(lines, "cgroup "+p)
		}
		return nil // others' cgroups come and go
	})
	if err != nil {
		return "", err
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}
