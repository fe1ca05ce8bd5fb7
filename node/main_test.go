package node_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/nstest"
)

// inside marks the second run of the test binary, in namespaces of its own.
const inside = "SAMPAN_NODE_TEST_INSIDE"

// TestMain runs the tests in a mount namespace of their own: the agent mounts
// things, and nothing of that may be seen or left outside. Who is not root gets a
// user namespace in which it may mount as well.
func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		leaktest.Main(m)
		return
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	nstest.Mounts(cmd)
	if err := cmd.Run(); err != nil {
		if cmd.ProcessState == nil {
			fmt.Fprintln(os.Stderr, "tests in a mount namespace of their own:", err)
		}
		os.Exit(1)
	}
}
