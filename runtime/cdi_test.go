package runtime_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestContainerGetsCDIDevices gives containers devices from files that are written while the runtime runs.
func TestContainerGetsCDIDevices(t *testing.T) {
	n := newNode(t)
	n.flags = append(n.flags, "--cdi-spec-dirs", n.path("static")+","+n.path("dynamic"), "--kubelet-dir", n.dir)
	n.start().withDemo()
	k := n.kit()
	p := k.PodConfig("devices")
	pod := k.Pod(p)
	config := func(name string, devices ...string) *cri.ContainerConfig {
		c := k.ContainerConfig(name, "read", "/proc/self/environ", "/gift/file", "/dev/card")
		for _, d := range devices {
			c.CDIDevices = append(c.GetCDIDevices(), &cri.CDIDevice{Name: d})
		}
		return c
	}
	refused := func(c *cri.ContainerConfig, want string) {
		t.Helper()
		_, err := n.runtime.CreateContainer(k.Context(), &cri.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: p})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("creating %s: %v, want an error with %q", c.GetMetadata().GetName(), err, want)
		}
	}
	refused(config("early", "gpu.example.com/card=one"), "CDI device injection failed: unresolvable CDI devices gpu.example.com/card=one")

	gift := filepath.Join(n.dir, "gift")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(gift, "file"), "from the driver")
	write(n.path("hook"), "#!/bin/sh\ncat >"+n.path("state")+".json\n")
	write(n.path("dynamic/gpu.example.com.json"), `{"cdiVersion":"0.6.0","kind":"gpu.example.com/card","devices":[
		{"name":"one","containerEdits":{"env":["CARD=one","HOSTNAME=replaced"],"deviceNodes":[{"path":"/dev/card","hostPath":"/dev/null"}]}},
		{"name":"two","containerEdits":{"env":["CARD=two"]}},
		{"name":"translated","containerEdits":{"mounts":[{"hostPath":"/var/lib/kubelet/gift","containerPath":"/translated","options":["ro","bind"]}],
			"hooks":[{"hookName":"createRuntime","path":"/var/lib/kubelet/other-hook"}]}}],
		"containerEdits":{"mounts":[{"hostPath":"`+gift+`","containerPath":"/gift","options":["ro","bind"]}],
		"hooks":[{"hookName":"createRuntime","path":"`+n.path("hook")+`"}]}}`)
	out := k.OutputOf(pod, p, config("one", "gpu.example.com/card=one"))
	if !strings.Contains(out, "CARD=one") || !strings.Contains(out, "HOSTNAME=replaced") || !strings.Contains(out, "from the driver") {
		t.Errorf("the container with the device has:\n%q", out)
	}
	// The hook got the container's state, and with it the directory of its configuration.
	state, err := os.ReadFile(n.path("state") + ".json")
	if err != nil || !strings.Contains(string(state), `"bundle":"`+n.path("state")) {
		t.Errorf("the hook got %s, %v", state, err)
	}
	// The pod of a driver has another directory mounted at /var/lib/kubelet, and writes paths as it sees them.
	write(n.path("other-hook"), "#!/bin/sh\n>"+n.path("translated")+"\n")
	driven := config("translated", "gpu.example.com/card=translated")
	driven.Args = []string{"read", "/translated/file"}
	if out := k.OutputOf(pod, p, driven); !strings.Contains(out, "from the driver") {
		t.Errorf("the container with paths in /var/lib/kubelet has:\n%q", out)
	}
	if _, err := os.Stat(n.path("translated")); err != nil {
		t.Errorf("the hook in /var/lib/kubelet was not called: %v", err)
	}
	// Old device plug-ins name devices in annotations.
	c := config("annotated")
	c.Annotations = map[string]string{"cdi.k8s.io/plugin": "gpu.example.com/card=two"}
	c.Args = []string{"read", "/proc/self/environ", "/gift/file"}
	if out := k.OutputOf(pod, p, c); !strings.Contains(out, "CARD=two") || !strings.Contains(out, "from the driver") {
		t.Errorf("the container with the annotation has:\n%q", out)
	}
	// Without the device a container has nothing of it.
	id, log := k.ContainerIn(pod, p, config("none"))
	if got := k.Ended(id); got.GetExitCode() == 0 {
		t.Errorf("a container without the device has its files: %s", k.Log(log, "stdout"))
	}
	refused(config("wrong", "gpu.example.com/card=three"), "unresolvable CDI devices gpu.example.com/card=three")
	write(n.path("dynamic/gpu.example.com.json"), `{`)
	refused(config("broken", "gpu.example.com/card=one"), "failed to parse CDI Spec")
}

// TestDevicesWorkAtAnyPath gives a container a device in /dev, and one in its root file system.
func TestDevicesWorkAtAnyPath(t *testing.T) {
	n := newNode(t)
	n.start().withDemo()
	k := n.kit()
	p := k.PodConfig("devices")
	pod := k.Pod(p)
	for name, path := range map[string]string{"in-dev": "/dev/data", "in-root": "/mnt/deep/data"} {
		c := k.ContainerConfig(name, "write", path, "word")
		c.Devices = []*cri.Device{{HostPath: "/dev/null", ContainerPath: path, Permissions: "mrw"}}
		if out := k.OutputOf(pod, p, c); strings.Contains(out, "denied") {
			t.Errorf("writing to %s: %q", path, out)
		}
	}
}
