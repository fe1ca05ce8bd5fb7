package container

import (
	"bufio"
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runc/libcontainer/seccomp"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
)

//go:embed seccomp.txt
var defaultProfile string

// A Profile is a list of system calls that containers may make.
type Profile struct {
	sections []section
}

// section holds for containers that have, or that lack, a capability.
type section struct {
	capability string // "" means that no capability is needed
	without    bool
	syscalls   []specs.LinuxSyscall
}

// DefaultProfile returns the profile of containers whose spec sets no other, or nil
// if this program was built without seccomp.
func DefaultProfile() (*Profile, error) {
	if !seccomp.Enabled {
		return nil, nil // there is none, and that is no error
	}
	return parseProfile(defaultProfile)
}

// parseProfile reads the format that the head of seccomp.txt explains.
func parseProfile(text string) (*Profile, error) {
	p := &Profile{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || line[0] == '#':
			continue
		case line[0] == '[':
			name, closed := strings.CutSuffix(line[1:], "]")
			if !closed {
				return nil, fmt.Errorf("seccomp profile line %d: %q has no ]", n, line)
			}
			s := section{capability: name}
			if rest, ok := strings.CutPrefix(name, "without "); ok {
				s.capability, s.without = rest, true
			}
			if name == "always" {
				s.capability = ""
			}
			p.sections = append(p.sections, s)
			continue
		case len(p.sections) == 0:
			return nil, fmt.Errorf("seccomp profile line %d: %q stands before the first section", n, line)
		}
		rules, err := parseRule(strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("seccomp profile line %d: %w", n, err)
		}
		last := &p.sections[len(p.sections)-1]
		last.syscalls = append(last.syscalls, rules...)
	}
	return p, lines.Err()
}

func parseRule(words []string) ([]specs.LinuxSyscall, error) {
	if len(words) == 3 && words[1] == "errno" {
		errno, err := strconv.ParseUint(words[2], 10, 16)
		if err != nil {
			return nil, fmt.Errorf("errno %q is not a number", words[2])
		}
		code := uint(errno)
		return []specs.LinuxSyscall{{Names: words[:1], Action: specs.ActErrno, ErrnoRet: &code}}, nil
	}
	if len(words) < 2 || words[1] != "if" {
		return []specs.LinuxSyscall{{Names: words, Action: specs.ActAllow}}, nil
	}
	if len(words) < 5 {
		return nil, errors.New("a condition is too short")
	}
	index, err := strconv.ParseUint(words[2], 10, 3)
	if err != nil {
		return nil, fmt.Errorf("%q is not the number of an argument", words[2])
	}
	var values []uint64
	for _, word := range words[4:] {
		if word == "==" {
			continue
		}
		v, err := strconv.ParseUint(word, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", word)
		}
		values = append(values, v)
	}
	switch words[3] {
	case "in":
		var rules []specs.LinuxSyscall
		for _, v := range values {
			rules = append(rules, specs.LinuxSyscall{Names: words[:1], Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{
				{Index: uint(index), Value: v, Op: specs.OpEqualTo},
			}})
		}
		return rules, nil
	case "&":
		if len(values) != 2 {
			return nil, errors.New("& needs a mask and a value")
		}
		return []specs.LinuxSyscall{{Names: words[:1], Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{
			{Index: uint(index), Value: values[0], ValueTwo: values[1], Op: specs.OpMaskedEqual},
		}}}, nil
	}
	return nil, fmt.Errorf("condition %q is not known", words[3])
}

// seccomp makes the filter of a container with these capabilities. Programs of the
// machine's 32-bit predecessor are killed unless compat is set: compiling the
// filter for a second architecture takes longer than everything else that starting
// a container does in this program.
func (p *Profile) seccomp(caps []string, compat bool) *specs.LinuxSeccomp {
	eperm := uint(1)
	out := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, DefaultErrnoRet: &eperm}
	switch runtime.GOARCH {
	case "amd64":
		out.Architectures = []specs.Arch{specs.ArchX86_64}
		if compat {
			out.Architectures = append(out.Architectures, specs.ArchX86)
		}
	case "arm64":
		out.Architectures = []specs.Arch{specs.ArchAARCH64}
		if compat {
			out.Architectures = append(out.Architectures, specs.ArchARM)
		}
	}
	for _, s := range p.sections {
		if s.capability == "" || slices.Contains(caps, s.capability) != s.without {
			out.Syscalls = append(out.Syscalls, s.syscalls...)
		}
	}
	return out
}

// Runs32Bit reports whether a root file system can run programs of the machine's
// 32-bit predecessor: it has the loader of dynamic ones, or its command is one.
func Runs32Bit(rootfs, command string) bool {
	for _, loader := range []string{"/lib/ld-linux.so.2", "/lib/ld-musl-i386.so.1", "/lib/ld-linux-armhf.so.3", "/lib/ld-musl-armhf.so.1"} {
		if f, err := openInRoot(rootfs, loader); err == nil {
			_ = f.Close()
			return true
		}
	}
	f, err := openInRoot(rootfs, command)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, elf.EI_NIDENT)
	if _, err := io.ReadFull(f, head); err != nil {
		return false
	}
	return string(head[:len(elf.ELFMAG)]) == elf.ELFMAG && elf.Class(head[elf.EI_CLASS]) == elf.ELFCLASS32
}

// CheckSeccomp reports what is wrong with a profile that replaces the default one.
func CheckSeccomp(p *specs.LinuxSeccomp) error {
	if p.DefaultAction == "" {
		return errors.New("defaultAction is missing")
	}
	_, err := specconv.SetupSeccomp(p)
	return err
}
