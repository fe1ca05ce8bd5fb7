package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/sampan-io/sampan/internal/oomscore"
)

// DefaultAppArmor is the name of the profile of containers that ask for the runtime's default one.
const DefaultAppArmor = "sampan-default"

// defaultAppArmor allows what the capabilities, the namespaces and the system call filter of a container leave, except for files of the
// kernel by which a container could change the host, mounts, and processes outside of the profile.
const defaultAppArmor = `#include <tunables/global>
profile ` + DefaultAppArmor + ` flags=(attach_disconnected,mediate_deleted) {
  #include <abstractions/base>
  network,
  capability,
  file,
  umount,
  signal (receive) peer=unconfined,
  signal (send, receive) peer=` + DefaultAppArmor + `,
  ptrace (trace, read, tracedby, readby) peer=` + DefaultAppArmor + `,
  deny mount,
  deny @{PROC}/{acpi,bus,driver,fs,irq,scsi,sys}/** wl,
  deny @{PROC}/{kcore,kmem,mem,sysrq-trigger} rwkl,
  deny /sys/{block,bus,class,dev,devices,hypervisor,kernel,module,power}/** wl,
  deny /sys/firmware/** rwkl,
  deny /sys/kernel/{debug,security,tracing}/** rwkl,
}
`

// parserLimit is how long the parser of profiles may take.
const parserLimit = 30 * time.Second

// AppArmor reports whether the kernel enforces AppArmor profiles.
func AppArmor() bool {
	b, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(b), "Y")
}

// LoadAppArmor loads the default profile into the kernel unless it is there. It starts a process.
func LoadAppArmor(ctx context.Context) error {
	loaded, err := os.ReadFile("/sys/kernel/security/apparmor/profiles")
	if err == nil && hasProfile(string(loaded), DefaultAppArmor) {
		return nil
	}
	return parseAppArmor(ctx, "--skip-cache", "--replace")
}

// parseAppArmor has the parser read the default profile.
func parseAppArmor(ctx context.Context, flags ...string) error {
	program, err := exec.LookPath("apparmor_parser")
	if err != nil {
		return errors.New("the program apparmor_parser, which loads profiles, is not installed")
	}
	ctx, cancel := context.WithTimeout(ctx, parserLimit)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, program, flags...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(defaultAppArmor), &out, &out
	if err := oomscore.Run(cmd); err != nil {
		return fmt.Errorf("apparmor_parser: %w: %s", err, strings.TrimSpace(out.String()))
	}
	return nil
}

// hasProfile reports whether a list of loaded profiles has one of a name. A line is the name and, in parentheses, the mode.
func hasProfile(list, name string) bool {
	for line := range strings.Lines(list) {
		if rest, ok := strings.CutPrefix(line, name+" ("); ok && strings.HasSuffix(strings.TrimSpace(rest), ")") {
			return true
		}
	}
	return false
}
