package runtime_test

import (
	"os"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestDamagedBootRecord starts the runtime with an empty record of the boot: its pods run on, because something is
// mounted below its state directory.
func TestDamagedBootRecord(t *testing.T) {
	n := newNode(t)
	n.start().withDemo()
	k := n.kit()
	p := k.PodConfig("stays")
	pod := k.Pod(p)
	id, _ := k.ContainerIn(pod, p, k.ContainerConfig("stays", "sleep"))
	pid := n.pidOf(id)
	n.kill()
	if err := os.WriteFile(n.path("state/boot"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.start()
	if st := n.kit().Status(id); st.GetState() != cri.ContainerState_CONTAINER_RUNNING || n.pidOf(id) != pid {
		t.Errorf("the container is %v with process %d, want it to run on with process %d", st.GetState(), n.pidOf(id), pid)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(n.path("state/boot")); err != nil || string(text) != string(boot) {
		t.Errorf("the record of the boot is %q, %v", text, err)
	}
}
