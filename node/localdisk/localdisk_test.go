package localdisk_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/volumes"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/localdisk"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

// agents are the agents of nodes behind the proxy subresource: each by the handlers of its directory.
type agents map[string]http.Handler

func newAgent(root string) http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range localdisk.Handlers(root) {
		mux.Handle(pattern, h)
	}
	return mux
}

// Do implements [localdisk.API].
func (a agents) Do(ctx context.Context, r client.RawRequest) (*http.Response, error) {
	node, path, _ := strings.Cut(strings.TrimPrefix(r.Path, "/api/v1/nodes/"), "/proxy")
	agent, ok := a[node]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), node)
	}
	u := url.URL{Path: path, RawQuery: r.Query.Encode()}
	w := httptest.NewRecorder()
	agent.ServeHTTP(w, httptest.NewRequestWithContext(ctx, r.Method, u.String(), nil))
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	resp := w.Result()
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var status metav1.Status
	if json.NewDecoder(resp.Body).Decode(&status) == nil && status.Kind == "Status" {
		return nil, apierrors.FromObject(&status)
	}
	return nil, apierrors.NewGenericServerResponse(resp.StatusCode, r.Method, corev1.Resource("nodes"), node, w.Body.String(), 0, true)
}

// provisioning runs a provisioner beside the binder. Claims that do not wait get volumes on node a.
func provisioning(t *testing.T, all agents) controllertest.Tasks {
	return func(c client.Interface, caches *cache.Shared) []run.Task {
		o := localdisk.Options{Client: c, Caches: caches}
		if all != nil {
			o.Node, o.Agents = "a", all
		}
		local, err := localdisk.Tasks(o)
		if err != nil {
			t.Fatal(err)
		}
		return append(volumes.Tasks(controllertest.Config(c, caches)), local...)
	}
}

func newNode(name string, ready corev1.ConditionStatus) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Message: "Kubelet stopped posting node status."}}
	return n
}

// said reports whether there is an event about an object with a message.
func said(s *clienttest.Server, about, reason, message string) bool {
	return slices.ContainsFunc(clienttest.All(s, client.Events, "default"), func(e *corev1.Event) bool {
		return e.InvolvedObject.Name == about && e.Reason == reason && strings.Contains(e.Message, message)
	})
}

func phase(s *clienttest.Server, claim string) corev1.PersistentVolumeClaimPhase {
	return clienttest.Find(s, client.PersistentVolumeClaims, "default", claim).Status.Phase
}

func deleteClaim(t *testing.T, s *clienttest.Server, name string) {
	t.Helper()
	if err := client.PersistentVolumeClaims.Delete(t.Context(), s, "default", name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// volumeOf returns the only volume.
func volumeOf(t *testing.T, s *clienttest.Server) *corev1.PersistentVolume {
	t.Helper()
	all := clienttest.All(s, client.PersistentVolumes, "")
	if len(all) != 1 {
		t.Fatalf("%d volumes, want one", len(all))
	}
	return all[0]
}

func newClaim(name, node string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
	c := plugintest.Object(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {namespace: default}, spec: {storageClassName: local, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`).(*corev1.PersistentVolumeClaim)
	c.Name, c.UID, c.Annotations = name, "", map[string]string{"volume.kubernetes.io/selected-node": node}
	if len(modes) > 0 {
		c.Spec.AccessModes = modes
	}
	return c
}

func TestVolumesComeAndGoOnEachNode(t *testing.T) {
	roots := map[string]string{"a": filepath.Join(t.TempDir(), "volumes"), "b": filepath.Join(t.TempDir(), "volumes")}
	all := agents{"a": newAgent(roots["a"]), "b": newAgent(roots["b"])}
	controllertest.Controlling(t, provisioning(t, all), func(t *testing.T, s *clienttest.Server) {
		class := clienttest.Find(s, client.StorageClasses, "", localdisk.Class)
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" {
			t.Errorf("the class is %+v", class)
		}
		s.Set(t, newNode("a", corev1.ConditionTrue), newNode("b", corev1.ConditionTrue))
		s.Set(t, newClaim("a", "a"), newClaim("b", "b"), newClaim("many", "a", corev1.ReadWriteMany))
		settle()
		var paths []string
		for name, root := range roots {
			c := clienttest.Find(s, client.PersistentVolumeClaims, "default", name)
			if c.Status.Phase != corev1.ClaimBound || c.Status.Capacity.Storage().String() != "1Gi" {
				t.Fatalf("the claim is %+v", c.Status)
			}
			v := clienttest.Find(s, client.PersistentVolumes, "", "pvc-"+string(c.UID))
			path := filepath.Join(root, v.Name)
			paths = append(paths, path)
			if v.Status.Phase != corev1.VolumeBound || v.Spec.Local.Path != path || v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != name {
				t.Errorf("the volume is %+v", v)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o777 {
				t.Errorf("the directory: %v %v", info, err)
			}
		}
		if all := clienttest.All(s, client.PersistentVolumes, ""); len(all) != 2 {
			t.Errorf("%d volumes, want two", len(all))
		}
		if !said(s, "many", "ProvisioningFailed", `failed to provision volume with StorageClass "local": a directory of one node cannot be ReadWriteMany, want ReadWriteOnce or ReadWriteOncePod`) {
			t.Error("no event says why there is no volume for many")
		}
		deleteClaim(t, s, "a")
		deleteClaim(t, s, "b")
		settle()
		if all := clienttest.All(s, client.PersistentVolumes, ""); len(all) != 0 {
			t.Errorf("the volume is %+v", all[0])
		}
		for _, path := range paths {
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("the directory is there: %v", err)
			}
		}
	})
}

// TestSilentNodeIsAskedWhenItIsBack shows that volumes of a node that is away wait for it, both to be made and to be removed.
func TestSilentNodeIsAskedWhenItIsBack(t *testing.T) {
	root := t.TempDir()
	controllertest.Controlling(t, provisioning(t, agents{"b": newAgent(root)}), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, newNode("b", corev1.ConditionUnknown), newClaim("data", "b"))
		settle()
		if got := phase(s, "data"); got != corev1.ClaimPending || !said(s, "data", "ProvisioningFailed", `node "b" is not ready: Kubelet stopped posting node status.`) {
			t.Errorf("the claim is %s, want Pending with the reason in an event", got)
		}
		s.Set(t, newNode("b", corev1.ConditionTrue))
		settle()
		if got := phase(s, "data"); got != corev1.ClaimBound {
			t.Fatalf("the claim is %s", got)
		}
		v := volumeOf(t, s)
		s.Set(t, newNode("b", corev1.ConditionUnknown))
		settle() // or the deletion may be seen first
		deleteClaim(t, s, "data")
		settle()
		if v = volumeOf(t, s); v.Status.Phase != corev1.VolumeReleased || !said(s, v.Name, "VolumeFailedDelete", "Kubelet stopped posting node status.") {
			t.Errorf("the volume is %s, want Released with the reason in an event", v.Status.Phase)
		}
		if _, err := os.Stat(v.Spec.Local.Path); err != nil {
			t.Errorf("the directory: %v", err)
		}
		s.Set(t, newNode("b", corev1.ConditionTrue))
		settle()
		if all := clienttest.All(s, client.PersistentVolumes, ""); len(all) != 0 {
			t.Errorf("the volume is %+v", all[0])
		}
		if _, err := os.Stat(v.Spec.Local.Path); !os.IsNotExist(err) {
			t.Errorf("the directory is there: %v", err)
		}
	})
}

// TestHangingNodeDelaysOnlyItsOwnVolumes with more claims than a node may have requests.
func TestHangingNodeDelaysOnlyItsOwnVolumes(t *testing.T) {
	var asked atomic.Int32
	hangs := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		<-r.Context().Done()
	})
	controllertest.Controlling(t, provisioning(t, agents{"a": newAgent(t.TempDir()), "b": hangs}), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, newNode("a", corev1.ConditionTrue), newNode("b", corev1.ConditionTrue))
		for i := range 300 {
			s.Set(t, newClaim("hangs-"+strconv.Itoa(i), "b"))
		}
		synctest.Wait()
		s.Set(t, newClaim("data", "a"))
		time.Sleep(time.Second)
		synctest.Wait()
		if got := phase(s, "data"); got != corev1.ClaimBound {
			t.Errorf("the claim for the other node is %s", got)
		}
		if got := asked.Load(); got != 4 {
			t.Errorf("%d requests to the node that hangs, want 4 at a time", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := asked.Load(); got < 8 {
			t.Errorf("%d requests: the waiting ones get no turn", got)
		}
	})
}

// TestNodeThatIsGone lets volumes go, and claims choose again.
func TestNodeThatIsGone(t *testing.T) {
	all := agents{"a": newAgent(t.TempDir()), "b": newAgent(t.TempDir())}
	controllertest.Controlling(t, provisioning(t, all), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, newNode("a", corev1.ConditionTrue), newNode("b", corev1.ConditionTrue), newClaim("data", "b"))
		settle()
		v := volumeOf(t, s)
		s.Set(t, newNode("b", corev1.ConditionUnknown))
		settle()
		deleteClaim(t, s, "data")
		settle()
		volumeOf(t, s)
		if err := client.Nodes.Delete(t.Context(), s, "", "b", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		if all := clienttest.All(s, client.PersistentVolumes, ""); len(all) != 0 {
			t.Errorf("the volume is %+v", all[0])
		}
		if _, err := os.Stat(v.Spec.Local.Path); err != nil || !said(s, v.Name, "VolumeDirectoryLeft", `node "b": the node does not exist`) {
			t.Errorf("the directory: %v; want it left, with an event", err)
		}
		s.Set(t, newClaim("late", "b"))
		settle()
		if c := clienttest.Find(s, client.PersistentVolumeClaims, "default", "late"); c.Annotations["volume.kubernetes.io/selected-node"] != "" {
			t.Errorf("the claim still has the node: %v", c.Annotations)
		}
		if all := clienttest.All(s, client.PersistentVolumes, ""); len(all) != 0 {
			t.Errorf("a volume was made before the scheduler has chosen again: %+v", all[0])
		}
	})
}

// TestClassThatDoesNotWait makes volumes on the node of the options, once that exists.
func TestClassThatDoesNotWait(t *testing.T) {
	controllertest.Controlling(t, provisioning(t, agents{"a": newAgent(t.TempDir())}), func(t *testing.T, s *clienttest.Server) {
		c := newClaim("data", "")
		c.Annotations, c.Spec.StorageClassName = nil, new("now")
		s.Set(t, plugintest.Object(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: now}, provisioner: sampan.dev/local, reclaimPolicy: Delete, volumeBindingMode: Immediate}`), c)
		settle()
		if got := phase(s, "data"); got != corev1.ClaimPending || !said(s, "data", "ProvisioningFailed", `node "a": the node does not exist`) {
			t.Errorf("the claim is %s, want Pending with the reason in an event", got)
		}
		s.Set(t, newNode("a", corev1.ConditionTrue))
		settle()
		settle() // the pause after failures is up to two minutes
		if got := phase(s, "data"); got != corev1.ClaimBound {
			t.Errorf("the claim is %s", got)
		}
	})
}

// TestAnswersOfAgents are refused unless they are those of our agent.
func TestAnswersOfAgents(t *testing.T) {
	for name, tt := range map[string]struct {
		agent http.HandlerFunc
		want  string
	}{
		"upstream's kubelet": {http.NotFound, `the kubelet of node "b" does not provide volumes of sampan.dev/local; only the agent of Sampan does`},
		"another path":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"path": "/etc"}`)) }, `the agent of node "b" returned the path "/etc", want an absolute path that ends with "pvc-`},
		"no path":            {func(http.ResponseWriter, *http.Request) {}, `the agent of node "b" returned no path of a volume`},
		"too much":           {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, localdisk.MaxAnswer+1)) }, "the answer has more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			controllertest.Controlling(t, provisioning(t, agents{"b": tt.agent}), func(t *testing.T, s *clienttest.Server) {
				s.Set(t, newNode("b", corev1.ConditionTrue), newClaim("data", "b"))
				settle()
				if got := phase(s, "data"); got != corev1.ClaimPending || !said(s, "data", "ProvisioningFailed", tt.want) {
					t.Errorf("the claim is %s, events %v", got, clienttest.All(s, client.Events, "default"))
				}
			})
		})
	}
}

// TestLabelOfNodeLeadsToNoOtherNode: a node may write its own hostname label, and the agent chooses the path.
func TestLabelOfNodeLeadsToNoOtherNode(t *testing.T) {
	controllertest.Controlling(t, provisioning(t, agents{"b": newAgent(t.TempDir())}), func(t *testing.T, s *clienttest.Server) {
		n := newNode("b", corev1.ConditionTrue)
		n.Labels[corev1.LabelHostname] = "a"
		s.Set(t, n, newNode("a", corev1.ConditionTrue), newClaim("data", "b"))
		settle()
		if got := volumeOf(t, s).Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values; !slices.Equal(got, []string{"b"}) {
			t.Errorf("the volume can be mounted on %v", got)
		}
	})
}

// TestNodeOfClaimIsNoPath: a user may write the annotation of a claim.
func TestNodeOfClaimIsNoPath(t *testing.T) {
	var asked atomic.Bool
	trap := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Store(true) })
	controllertest.Controlling(t, provisioning(t, agents{"b:8080": trap, "https:b:22": trap, "b/../c": trap}), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, newNode("b", corev1.ConditionTrue), newClaim("x", "b:8080"), newClaim("y", "https:b:22"), newClaim("z", "b/../c"))
		settle()
		if asked.Load() {
			t.Error("a request was sent to a port or path that the claim chose")
		}
	})
}

// TestRetainedVolumesKeepTheirFiles even when the volume is deleted.
func TestRetainedVolumesKeepTheirFiles(t *testing.T) {
	controllertest.Controlling(t, provisioning(t, agents{"a": newAgent(t.TempDir())}), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, newNode("a", corev1.ConditionTrue), newClaim("data", "a"))
		settle()
		v := clienttest.All(s, client.PersistentVolumes, "")[0].DeepCopy()
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		s.Set(t, v)
		for _, err := range []error{
			client.PersistentVolumes.Delete(t.Context(), s, "", v.Name, metav1.DeleteOptions{}),
			client.PersistentVolumeClaims.Delete(t.Context(), s, "default", "data", metav1.DeleteOptions{}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		settle()
		if all := clienttest.All(s, client.PersistentVolumes, ""); len(all) != 0 {
			t.Errorf("the volume is %+v", all[0])
		}
		if _, err := os.Stat(v.Spec.Local.Path); err != nil {
			t.Errorf("the directory: %v", err)
		}
	})
}

// TestNoDirectoryOfOthersIsRemoved whatever a volume says.
func TestNoDirectoryOfOthersIsRemoved(t *testing.T) {
	const name = "pvc-00000000-0000-0000-0000-00000000000"
	root, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{"x", name + "0", name + "1"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	controllertest.Controlling(t, provisioning(t, agents{"a": newAgent(root)}), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, newNode("a", corev1.ConditionTrue))
		for volume, path := range map[string]string{name + "0": other, "x": filepath.Join(root, "x"), name + "2": filepath.Join(root, name+"1")} {
			v := plugintest.Object(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: ` + volume + `, annotations: {pv.kubernetes.io/provisioned-by: sampan.dev/local, volume.kubernetes.io/selected-node: a}}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, local: {path: ` + path + `}, persistentVolumeReclaimPolicy: Delete, claimRef: {namespace: default, name: c, uid: gone}}}`)
			s.Set(t, v)
		}
		settle()
		for _, dir := range []string{other, filepath.Join(root, "x"), filepath.Join(root, name+"0"), filepath.Join(root, name+"1")} {
			if _, err := os.Stat(dir); err != nil {
				t.Errorf("the directory: %v", err)
			}
		}
		for _, volume := range []string{name + "0", "x", name + "2"} {
			if !said(s, volume, "VolumeFailedDelete", `the path of volume "`+volume+`"`) {
				t.Errorf("no event says why volume %s stays", volume)
			}
		}
	})
}

func TestNodesWithoutFiles(t *testing.T) {
	controllertest.Controlling(t, provisioning(t, nil), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, newClaim("x", "a"), newClaim("y", "b"))
		settle()
		for _, name := range []string{"x", "y"} {
			if c := clienttest.Find(s, client.PersistentVolumeClaims, "default", name); c.Status.Phase != corev1.ClaimBound {
				t.Errorf("claim %s is %s", name, c.Status.Phase)
			}
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []localdisk.Options{{Node: "a"}, {Agents: agents{}}} {
		o.Client = clienttest.New(t)
		if _, err := localdisk.Tasks(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// settle waits until writes that met a conflict are done: the answer to one can take a tenth of a second.
func settle() {
	time.Sleep(time.Minute)
	synctest.Wait()
}
