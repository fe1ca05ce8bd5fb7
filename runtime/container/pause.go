package container

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
)

// PauseProgram returns an executable file that does nothing: process 1 of the PID
// namespace that the containers of a pod share. It ignores SIGCHLD, so the kernel
// removes orphans that it inherits as soon as they end, and then sleeps for ever. It
// has no libraries, and takes two pages of memory where a Go program takes megabytes.
func PauseProgram() ([]byte, error) {
	code, machine := pauseCode(runtime.GOARCH)
	if code == nil {
		return nil, fmt.Errorf("a process namespace shared by the containers of a pod is not supported on %s", runtime.GOARCH)
	}
	const base = 0x400000 // where the file is mapped
	const headers = 64 + 56
	size := uint64(headers + len(code))
	var ident [elf.EI_NIDENT]byte
	copy(ident[:], elf.ELFMAG)
	ident[elf.EI_CLASS], ident[elf.EI_DATA], ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	var file bytes.Buffer
	for _, part := range []any{
		elf.Header64{
			Ident: ident, Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
			Entry: base + headers, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
		},
		elf.Prog64{
			Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base, Paddr: base, Filesz: size, Memsz: size, Align: 0x1000,
		},
		code,
	} {
		if err := binary.Write(&file, binary.LittleEndian, part); err != nil {
			return nil, err
		}
	}
	return file.Bytes(), nil
}

// pauseCode returns the program's instructions, with the argument of rt_sigaction
// after them: a struct sigaction whose handler is SIG_IGN.
func pauseCode(arch string) ([]byte, elf.Machine) {
	ignore := append([]byte{1}, make([]byte, 31)...)
	switch arch {
	case "amd64":
		return slices.Concat([]byte{
			0xb8, 0x0d, 0x00, 0x00, 0x00, // mov  $13, %eax          rt_sigaction
			0xbf, 0x11, 0x00, 0x00, 0x00, // mov  $17, %edi          SIGCHLD
			0x48, 0x8d, 0x35, 0x13, 0x00, 0x00, 0x00, // lea  0x13(%rip), %rsi   the struct
			0x31, 0xd2, // xor  %edx, %edx
			0x41, 0xba, 0x08, 0x00, 0x00, 0x00, // mov  $8, %r10d
			0x0f, 0x05, // syscall
			0xb8, 0x22, 0x00, 0x00, 0x00, // mov  $34, %eax          pause
			0x0f, 0x05, // syscall
			0xeb, 0xf7, // jmp  to the mov of pause
		}, ignore), elf.EM_X86_64
	case "arm64":
		return slices.Concat([]byte{
			0xc8, 0x10, 0x80, 0xd2, // mov  x8, #134            rt_sigaction
			0x20, 0x02, 0x80, 0xd2, // mov  x0, #17             SIGCHLD
			0x81, 0x01, 0x00, 0x10, // adr  x1, .+48            the struct
			0xe2, 0x03, 0x1f, 0xaa, // mov  x2, xzr
			0xe3, 0x03, 0x7d, 0xb2, // mov  x3, #8
			0x01, 0x00, 0x00, 0xd4, // svc  #0
			0x28, 0x09, 0x80, 0xd2, // mov  x8, #73             ppoll
			0xe0, 0x03, 0x1f, 0xaa, // mov  x0, xzr
			0xe1, 0x03, 0x1f, 0xaa, // mov  x1, xzr
			0xe2, 0x03, 0x1f, 0xaa, // mov  x2, xzr
			0xe3, 0x03, 0x1f, 0xaa, // mov  x3, xzr
			0xe4, 0x03, 0x1f, 0xaa, // mov  x4, xzr
			0x01, 0x00, 0x00, 0xd4, // svc  #0
			0xf9, 0xff, 0xff, 0x17, // b    to the mov of ppoll
		}, ignore), elf.EM_AARCH64
	}
	return nil, elf.EM_NONE
}
