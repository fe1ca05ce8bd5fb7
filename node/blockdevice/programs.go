package blockdevice

import (
	"bytes"

	utilexec "k8s.io/utils/exec"

	"github.com/sampan-io/sampan/internal/oomscore"
)

// programs starts the programs of file systems, such as fsck, which can take much memory, without the protection that the
// node agent has when memory runs out.
type programs struct{ utilexec.Interface }

func newPrograms() utilexec.Interface { return programs{utilexec.New()} }

// Command implements [utilexec.Interface].
func (p programs) Command(name string, args ...string) utilexec.Cmd {
	return program{p.Interface.Command(name, args...)}
}

// A program is what package mount uses of a command: its output.
type program struct{ utilexec.Cmd }

// Start implements [utilexec.Cmd].
func (p program) Start() error { return oomscore.Spawn(p.Cmd.Start) }

// CombinedOutput implements [utilexec.Cmd].
func (p program) CombinedOutput() ([]byte, error) {
	var out bytes.Buffer
	p.SetStdout(&out)
	p.SetStderr(&out)
	err := p.Start()
	if err == nil {
		err = p.Wait()
	}
	return out.Bytes(), err
}
