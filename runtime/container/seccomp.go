package container

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runc/libcontainer/seccomp"
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
	capability string // "" means everybody
	without    bool
	syscalls   []specs.LinuxSyscall
}

// DefaultProfile returns the profile that containers get if nobody says
// otherwise, or nil if this program was built without seccomp.
func DefaultProfile() (*Profile, error) {
	if !seccomp.Enabled {
		return nil, nil //nolint:nilnil // there is none, and that is no error
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

// seccomp makes the filter of a container with these capabilities.
func (p *Profile) seccomp(caps []string) *specs.LinuxSeccomp {
	eperm := uint(1)
	out := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, DefaultErrnoRet: &eperm, Architectures: architectures()}
	for _, s := range p.sections {
		if s.capability == "" || slices.Contains(caps, s.capability) != s.without {
			out.Syscalls = append(out.Syscalls, s.syscalls...)
		}
	}
	return out
}

// architectures are the machine's and those whose programs it runs, too.
func architectures() []specs.Arch {
	switch runtime.GOARCH {
	case "amd64":
		return []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32}
	case "arm64":
		return []specs.Arch{specs.ArchAARCH64, specs.ArchARM}
	}
	return nil // only the native one
}
