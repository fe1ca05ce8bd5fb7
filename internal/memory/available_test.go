package memory

import (
	"testing"
	"testing/fstest"
)

func TestAvailable(t *testing.T) {
	const (
		v2     = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		v1     = "30 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
		hybrid = v1 + "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
	)
	tests := []struct {
		name    string
		machine uint64
		files   map[string]string
		want    uint64
	}{
		{"no cgroups", 1000, nil, 1000},
		{"nothing is known", 0, nil, 0},
		{"v2 without a limit", 1000, map[string]string{
			"proc/self/cgroup": "0::/system.slice/sampan.service\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/system.slice/sampan.service/memory.max": "max\n",
		}, 1000},
		{"v2, a unit with MemoryMax", 1000, map[string]string{
			"proc/self/cgroup": "0::/system.slice/sampan.service\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/system.slice/sampan.service/memory.max": "300\n",
		}, 300},
		{"v2, a unit with MemoryHigh", 1000, map[string]string{
			"proc/self/cgroup": "0::/system.slice/sampan.service\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/system.slice/sampan.service/memory.max": "300\n", "sys/fs/cgroup/system.slice/sampan.service/memory.high": "200\n",
		}, 200},
		{"v2, a limit of the slice", 1000, map[string]string{
			"proc/self/cgroup": "0::/a.slice/b.slice/c.service\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/a.slice/memory.max": "100\n", "sys/fs/cgroup/a.slice/b.slice/memory.max": "max\n", "sys/fs/cgroup/a.slice/b.slice/c.service/memory.max": "300\n",
		}, 100},
		{"v2, a limit above the machine's memory", 1000, map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/a/memory.max": "3000\n",
		}, 1000},
		{"v2, the memory of the machine is not known", 0, map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/a/memory.max": "3000\n",
		}, 3000},
		{"v2, the limit of another unit", 1000, map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/b/memory.max": "300\n", "sys/fs/cgroup/a/b/memory.max": "200\n",
		}, 1000},
		{"v2, a container with a cgroup namespace", 1000, map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/memory.max": "300\n",
		}, 300},
		{"v2, a container that was moved out of its namespace", 1000, map[string]string{
			"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": v2, "sys/fs/cgroup/memory.max": "300\n",
		}, 300},
		{"v1, a unit", 1000, map[string]string{
			"proc/self/cgroup": "4:memory:/system.slice/sampan.service\n1:cpu:/\n0::/\n", "proc/self/mountinfo": hybrid,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/system.slice/sampan.service/memory.limit_in_bytes": "300\n",
		}, 300},
		{"v1 with more controllers in a hierarchy", 1000, map[string]string{
			"proc/self/cgroup": "4:hugetlb,memory:/a\n", "proc/self/mountinfo": "35 31 0:32 / /cg/both rw - cgroup cgroup rw,hugetlb,memory\n",
			"cg/both/a/memory.limit_in_bytes": "300\n",
		}, 300},
		{"v1, a container that sees a part of the hierarchy", 1000, map[string]string{
			"proc/self/cgroup": "4:memory:/docker/abc\n", "proc/self/mountinfo": "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "300\n", "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "200\n",
		}, 300},
		{"v1, in a child of what a container sees", 1000, map[string]string{
			"proc/self/cgroup": "4:memory:/docker/abc/child\n", "proc/self/mountinfo": "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "300\n", "sys/fs/cgroup/memory/child/memory.limit_in_bytes": "200\n",
		}, 200},
		{"v2, a mount of another unit's cgroup comes first", 1000, map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": "30 23 0:28 /other /run/other rw - cgroup2 cgroup2 rw\n" + v2,
			"run/other/memory.max": "100\n", "sys/fs/cgroup/a/memory.max": "300\n",
		}, 300},
		{"v2, a mount of a part of the hierarchy comes first", 1000, map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": "30 23 0:28 /a/b /run/b rw - cgroup2 cgroup2 rw\n" + v2,
			"run/b/memory.max": "400\n", "sys/fs/cgroup/a/memory.max": "300\n",
		}, 300},
		{"v2, a mount of a part of the hierarchy comes last", 1000, map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": v2 + "45 23 0:28 /a/b /run/b rw - cgroup2 cgroup2 rw\n",
			"run/b/memory.max": "400\n", "sys/fs/cgroup/a/memory.max": "300\n",
		}, 300},
		{"v2, the mount of the parent's cgroup namespace comes first", 1000, map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": "31 23 0:28 /../../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n" +
				"45 31 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			"sys/fs/cgroup/memory.max": "400\n", "sys/fs/cgroup/a/memory.max": "300\n",
		}, 300},
		{"files that cannot be read as numbers", 1000, map[string]string{
			"proc/self/cgroup": "x\n0::/a\n", "proc/self/mountinfo": "x\n" + v2, "sys/fs/cgroup/a/memory.max": "\n",
		}, 1000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, text := range tt.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := available(root, tt.machine); got != tt.want {
				t.Errorf("available = %d, want %d", got, tt.want)
			}
		})
	}
}
