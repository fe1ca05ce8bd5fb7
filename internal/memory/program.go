package memory

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetProgram gives back the pages of the program's own file that starting has touched: most of
// them are never needed again, and the rest is read again from the page cache. Without it the whole
// program, with the images built into it, would count as memory of an idle process for ever.
//
// Only mappings without pages of their own are touched: pages that were read from the file can be
// read again.
func forgetProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	var from, to uint64
	ours := false
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-") && !strings.HasSuffix(fields[0], ":"):
			ours = strings.HasPrefix(fields[1], "r-") && strings.HasSuffix(line, " "+program)
			if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err != nil {
				return fmt.Errorf("smaps: %w", err)
			}
		case ours && strings.HasPrefix(line, "Anonymous:"):
			if len(fields) == 3 && fields[1] == "0" {
				_, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED)
				if errno != 0 {
					return fmt.Errorf("madvise: %w", errno)
				}
			}
			ours = false
		}
	}
	return lines.Err()
}
