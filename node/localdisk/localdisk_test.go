package localdisk_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// provisioning runs a provisioner for node a, beside the binder.
func provisioning(t *testing.T, root string) controllertest.Tasks {
	return func(c client.Interface, caches *cache.Shared) []run.Task {
		o := localdisk.Options{Client: c, Caches: caches}
		if root != "" {
			o.Node, o.Root = "a", root
		}
		local, err := localdisk.Tasks(o)
		if err != nil {
			t.Fatal(err)
		}
		return append(volumes.Tasks(controllertest.Config(c, caches)), local...)
	}
}

func newClaim(name, node string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
	c := plugintest.Object(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {namespace: default}, spec: {storageClassName: local, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`).(*corev1.PersistentVolumeClaim) //nolint:forcetypeassert // so it says
	c.Name, c.UID, c.Annotations = name, "", map[string]string{"volume.kubernetes.io/selected-node": node}
	if len(modes) > 0 {
		c.Spec.AccessModes = modes
	}
	return c
}

func TestVolumesComeAndGo(t *testing.T) {
	root := t.TempDir()
	controllertest.Controlling(t, provisioning(t, root), func(t *testing.T, s *clienttest.Server) {
		class := clienttest.Find(s, client.StorageClasses, "", localdisk.Class)
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" {
			t.Errorf("the class is %+v", class)
		}
		s.Set(t, newClaim("data", "a"), newClaim("elsewhere", "b"), newClaim("many", "a", corev1.ReadWriteMany))
		settle()
		c := clienttest.Find(s, client.PersistentVolumeClaims, "default", "data")
		if c.Status.Phase != corev1.ClaimBound || c.Status.Capacity.Storage().String() != "1Gi" {
			t.Fatalf("the claim is %+v", c.Status)
		}
		v := clienttest.Find(s, client.PersistentVolumes, "", "pvc-"+string(c.UID))
		path := filepath.Join(root, v.Name)
		if v.Status.Phase != corev1.VolumeBound || v.Spec.Local.Path != path || v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != "a" {
			t.Errorf("the volume is %+v", v)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o777 {
			t.Errorf("the directory: %v %v", info, err)
		}
		if all := clienttest.All(s, client.PersistentVolumes, ""); len(all) != 1 {
			t.Errorf("%d volumes, want one: no others can be made here", len(all))
		}
		if !slices.ContainsFunc(clienttest.All(s, client.Events, "default"), func(e *corev1.Event) bool {
			return e.InvolvedObject.Name == "many" && e.Reason == "ProvisioningFailed" && e.Message == `failed to provision volume with StorageClass "local": a directory of one node cannot be ReadWriteMany, want ReadWriteOnce or ReadWriteOncePod`
		}) {
			t.Error("why there is no volume for many is not said")
		}
		if err := client.PersistentVolumeClaims.Delete(t.Context(), s, "default", "data", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		if all := clienttest.All(s, client.PersistentVolumes, ""); len(all) != 0 {
			t.Errorf("the volume is %+v", all[0])
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("the directory is there: %v", err)
		}
	})
}

// TestRetainedVolumesKeepTheirFiles even when the volume is deleted.
func TestRetainedVolumesKeepTheirFiles(t *testing.T) {
	root := t.TempDir()
	controllertest.Controlling(t, provisioning(t, root), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, newClaim("data", "a"))
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
	root, other := t.TempDir(), t.TempDir()
	controllertest.Controlling(t, provisioning(t, root), func(t *testing.T, s *clienttest.Server) {
		v := plugintest.Object(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: pvc-x, annotations: {pv.kubernetes.io/provisioned-by: sampan.dev/local, volume.kubernetes.io/selected-node: a}}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, local: {path: ` + other + `}, persistentVolumeReclaimPolicy: Delete, claimRef: {namespace: default, name: c, uid: gone}}}`)
		s.Set(t, v)
		settle()
		if _, err := os.Stat(other); err != nil {
			t.Errorf("the directory: %v", err)
		}
	})
}

func TestNodesWithoutFiles(t *testing.T) {
	controllertest.Controlling(t, provisioning(t, ""), func(t *testing.T, s *clienttest.Server) {
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
	for _, o := range []localdisk.Options{{Node: "a"}, {Root: "/x"}, {Node: "a", Root: "x"}} {
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
