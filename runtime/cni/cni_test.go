package cni_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sampan-io/sampan/runtime/cni"
)

// plugin writes its calls into a file beside it. It answers ADD with the file result, and fails at the command that is the contents
// of the file fail.
const plugin = `#!/bin/sh
dir=$(dirname "$0")
echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_NETNS $CNI_ARGS" >>"$dir/calls"
cat >"$dir/stdin-$CNI_COMMAND"
[ ! -e "$dir/hang" ] || sleep 1000
case $CNI_COMMAND in
"$(cat "$dir/fail" 2>/dev/null)") echo '{"cniVersion": "1.0.0", "code": 11, "msg": "out of luck"}'; exit 1 ;;
ADD) cat "$dir/result" ;;
STATUS) [ ! -e "$dir/down" ] || { echo '{"cniVersion": "1.1.0", "code": 50, "msg": "no route"}'; exit 1; } ;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0", "1.1.0"]}' ;;
esac
`

const result = `{"cniVersion": "1.0.0", "interfaces": [{"name": "br0"}, {"name": "veth1"}, {"name": "eth0", "sandbox": "/ns"}],
"ips": [{"address": "10.1.0.1/24", "interface": 0}, {"address": "10.1.0.7/24", "interface": 2}, {"address": "fd00::7/64"}, {"address": "10.1.0.9/24", "interface": 9}]}`

type rig struct {
	*testing.T
	conf, bin, cache string
	n                *cni.Network
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, conf: t.TempDir(), bin: t.TempDir(), cache: filepath.Join(t.TempDir(), "cache")}
	r.write(filepath.Join(r.bin, "fake"), plugin)
	r.write(filepath.Join(r.bin, "result"), result)
	r.n = cni.New(cni.Options{ConfDir: r.conf, BinDirs: []string{r.bin}, Cache: r.cache})
	return r
}

func (r *rig) write(path, text string) {
	r.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) read(name string) string {
	r.Helper()
	text, err := os.ReadFile(filepath.Join(r.bin, name))
	if err != nil {
		r.Fatal(err)
	}
	return string(text)
}

func (r *rig) calls() []string {
	r.Helper()
	defer r.write(filepath.Join(r.bin, "calls"), "")
	return strings.Split(strings.TrimSpace(r.read("calls")), "\n")
}

var pod = cni.Pod{
	ID: "id1", Namespace: "ns", Name: "web", UID: "u1", NetNS: "/no/namespace", Annotations: map[string]string{"a": "b"},
	Ports: []cni.Port{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}}, Bandwidth: cni.Bandwidth{EgressRate: 1000},
}

const args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=id1;K8S_POD_UID=u1"

func list(name string) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "plugins": [{"type": "fake", "capabilities": {"portMappings": true, "bandwidth": true}}]}`, name)
}

func TestPodIsDetachedWithWhatAttachedIt(t *testing.T) {
	r := newRig(t)
	r.write(filepath.Join(r.conf, "20-later.conf"), `{"cniVersion": "1.0.0", "name": "later", "type": "missing"}`)
	r.write(filepath.Join(r.conf, "10-first.conflist"), list("first"))
	got, err := r.n.Attach(t.Context(), pod)
	want := []netip.Addr{netip.MustParseAddr("10.1.0.7"), netip.MustParseAddr("fd00::7")}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("%v, %v, want %v", got, err, want)
	}
	if got, want := r.calls(), "ADD id1 eth0 /no/namespace "+args; len(got) != 1 || got[0] != want {
		t.Errorf("calls %q, want %q", got, want)
	}
	for _, part := range []string{`"name":"first"`, `"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp","hostIP":""}]`, `"bandwidth":{"egressRate":1000,"egressBurst":4294967295}`} {
		if in := r.read("stdin-ADD"); !strings.Contains(in, part) {
			t.Errorf("the plug-in reads %s, want %s in it", in, part)
		}
	}
	if strings.Contains(r.read("stdin-ADD"), "annotations") {
		t.Error("the plug-in gets a capability that it does not have")
	}
	if err := r.n.Check(t.Context(), pod); err != nil {
		t.Error(err)
	}
	// The configuration changes, and the runtime is started again.
	r.write(filepath.Join(r.conf, "00-new.conflist"), list("new"))
	r.n = cni.New(cni.Options{ConfDir: r.conf, BinDirs: []string{r.bin}, Cache: r.cache})
	for range 2 { // twice is no error
		if err := r.n.Detach(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.calls(); len(got) != 3 || !strings.HasPrefix(got[0], "CHECK id1") || got[1] != "DEL id1 eth0  "+args {
		t.Errorf("calls %q, want a CHECK and two DEL without a namespace", got)
	}
}

func TestFailedAttemptIsDetached(t *testing.T) {
	r := newRig(t)
	r.write(filepath.Join(r.conf, "10.conflist"), list("first"))
	r.write(filepath.Join(r.bin, "fail"), "ADD")
	if _, err := r.n.Attach(t.Context(), pod); err == nil || err.Error() != `network "first": plugin type="fake" failed (add): out of luck` {
		t.Errorf("%v", err)
	}
	if err := r.n.Detach(t.Context(), pod); err != nil {
		t.Error(err)
	}
	if got := r.calls(); len(got) != 2 || !strings.HasPrefix(got[1], "DEL id1") {
		t.Errorf("calls %q, want ADD and DEL", got)
	}
	r.write(filepath.Join(r.bin, "result"), `{"cniVersion": "1.0.0", "ips": []}`)
	r.write(filepath.Join(r.bin, "fail"), "")
	if _, err := r.n.Attach(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "returned no address of eth0") {
		t.Errorf("without an address: %v", err)
	}
}

func TestConfigurationThatCannotBeUsed(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"none":       {"readme.txt": "hello"},
		"not JSON":   {"1.conflist": "{"},
		"no plugins": {"1.conflist": `{"cniVersion": "1.0.0", "name": "x", "plugins": []}`},
		"no type":    {"1.conf": `{"cniVersion": "1.0.0", "name": "x"}`},
	} {
		r := newRig(t)
		for file, text := range files {
			r.write(filepath.Join(r.conf, file), text)
		}
		if err := r.n.Status(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "cni plugin not initialized: ") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := r.n.Attach(t.Context(), pod); err == nil {
			t.Errorf("%s: a pod is attached", name)
		}
		if err := r.n.Detach(t.Context(), pod); err != nil {
			t.Errorf("%s: a pod that was never attached can't be detached: %v", name, err)
		}
	}
}

func TestLostPodsAreDetached(t *testing.T) {
	r := newRig(t)
	r.write(filepath.Join(r.conf, "10.conflist"), list("first"))
	other := pod
	other.ID = "id2"
	for _, p := range []cni.Pod{pod, other} {
		if _, err := r.n.Attach(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	r.calls()
	exists := func(id string) bool { return id == "id2" }
	r.n.Settle(t.Context(), exists)
	if got := r.calls(); len(got) != 1 || !strings.HasPrefix(got[0], "DEL id1 eth0 ") {
		t.Errorf("calls %q, want DEL of the first pod", got)
	}
	r.n.Settle(t.Context(), exists)
	if got := r.calls(); got[0] != "" {
		t.Errorf("calls %q, want none", got)
	}
}

// A plug-in that hangs is ended although its child keeps its output open.
func TestPluginThatHangsIsEnded(t *testing.T) {
	r := newRig(t)
	r.write(filepath.Join(r.conf, "10.conflist"), list("first"))
	r.write(filepath.Join(r.bin, "hang"), "")
	r.n = cni.New(cni.Options{ConfDir: r.conf, BinDirs: []string{r.bin}, Cache: r.cache, Limit: 100 * time.Millisecond})
	_, err := r.n.Attach(t.Context(), pod)
	if err == nil || !strings.Contains(err.Error(), `plugin type="fake" failed (add): the plug-in did not end in time: context deadline exceeded`) {
		t.Errorf("%v", err)
	}
	if err := os.Remove(filepath.Join(r.bin, "hang")); err != nil {
		t.Fatal(err)
	}
	r.n = cni.New(cni.Options{ConfDir: r.conf, BinDirs: []string{r.bin}, Cache: r.cache})
	if err := r.n.Detach(t.Context(), pod); err != nil {
		t.Error(err)
	}
}

func TestPluginsOfVersion11ReportAndCollect(t *testing.T) {
	r := newRig(t)
	r.write(filepath.Join(r.conf, "10.conflist"), strings.Replace(list("first"), "1.0.0", "1.1.0", 1))
	if err := r.n.Status(t.Context()); err != nil {
		t.Error(err)
	}
	r.write(filepath.Join(r.bin, "down"), "")
	if err := r.n.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "no route") {
		t.Errorf("the status of a plug-in that is down: %v", err)
	}
	other := pod
	other.ID = "id2"
	for _, p := range []cni.Pod{pod, other} {
		if _, err := r.n.Attach(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	r.calls()
	r.n.Settle(t.Context(), func(id string) bool { return id == "id2" })
	calls := r.calls()
	if len(calls) < 2 || !strings.HasPrefix(calls[0], "DEL id1") || !strings.HasPrefix(calls[len(calls)-1], "GC") {
		t.Errorf("calls %q, want DEL of the lost pod and GC", calls)
	}
	if in := r.read("stdin-GC"); !strings.Contains(in, `"cni.dev/valid-attachments":[{"containerID":"id2","ifname":"eth0"}]`) {
		t.Errorf("the plug-in reads %s", in)
	}
}
