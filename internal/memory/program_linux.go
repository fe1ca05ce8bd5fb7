//go:build !portable

package memory

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// programPages are the mappings of the program's own file: its code and constants. The zero value is
// ready for use.
type programPages struct {
	known bool
	all   []mapping
}

type mapping struct{ from, to uintptr }

// forget gives the pages back to the system. Most pages that the start has touched are never needed
// again, and the kernel maps many neighbors of each page that is touched: without it a large part of
// the program, with the images built into it, would count as memory of an idle process for ever. What
// is needed is mapped again from the page cache.
func (p *programPages) forget() (err error) {
	if !p.known {
		if p.all, err = readOnlyMappings(); err != nil {
			return err
		}
		p.known = true
	}
	for _, m := range p.all {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return nil
}

// readOnlyMappings returns the mappings of the program's file that cannot be written and have no pages
// of their own, which relocations make: only pages that were read from the file can be read again. The
// loader has made all of them before the program runs.
func readOnlyMappings() ([]mapping, error) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var (
		all  []mapping
		m    mapping
		ours bool
	)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-") && !strings.HasSuffix(fields[0], ":"):
			ours = strings.HasPrefix(fields[1], "r-") && strings.HasSuffix(line, " "+program)
			if _, err := fmt.Sscanf(fields[0], "%x-%x", &m.from, &m.to); err != nil {
				return nil, fmt.Errorf("smaps: %w", err)
			}
		case ours && strings.HasPrefix(line, "Anonymous:"):
			if len(fields) == 3 && fields[1] == "0" {
				all = append(all, m)
			}
			ours = false
		}
	}
	return all, lines.Err()
}
