package builtin_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

func TestStoriesOfVolumes(t *testing.T) { plugintest.Play(t, "testdata/volumes", builtin.Default()) }

// TestVolumePluginsKeepTheLaws checks the laws where there are volumes.
func TestVolumePluginsKeepTheLaws(t *testing.T) {
	for _, p := range []plugin.Plugin{&builtin.VolumeBinding{}, builtin.NodeVolumeLimits{}, builtin.VolumeZone{}, builtin.VolumeRestrictions{}} {
		t.Run(p.Name(), func(t *testing.T) { plugintest.LawsIn(t, p, storageWorlds()) })
	}
}

// storageWorlds generates clusters with volumes, in which everything that plug-ins look at is likely to matter.
func storageWorlds() *rapid.Generator[plugintest.World] {
	return rapid.Custom(func(t *rapid.T) plugintest.World {
		w := plugintest.Worlds().Draw(t, "world")
		for i := range 3 {
			w.Objects = append(w.Objects, randomClaim(t, i), randomVolume(t, i))
			w.Changes = append(w.Changes, randomClaim(t, i), randomVolume(t, i), going(randomVolume(t, i)))
		}
		w.Objects = append(w.Objects, randomClass(t), randomDriver(t), randomCapacity(t), randomAttachment(t, w.Nodes))
		w.Changes = append(w.Changes, randomClass(t), randomDriver(t), going(randomDriver(t)), randomCapacity(t), going(randomAttachment(t, w.Nodes)))
		for _, n := range w.Nodes {
			if rapid.Bool().Draw(t, "has drivers") {
				w.Objects = append(w.Objects, randomDrivers(t, n.Name))
			}
			w.Changes = append(w.Changes, randomDrivers(t, n.Name))
		}
		for _, p := range append(w.Pods, w.Pending) {
			p.Namespace = "default"
			for i := range rapid.IntRange(0, 2).Draw(t, "volumes") {
				v := corev1.Volume{Name: fmt.Sprintf("v%d", i)}
				if rapid.IntRange(0, 4).Draw(t, "a disk") == 0 {
					v.GCEPersistentDisk = &corev1.GCEPersistentDiskVolumeSource{PDName: "d", ReadOnly: rapid.Bool().Draw(t, "read only")}
				} else {
					v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprintf("c%d", rapid.IntRange(0, 2).Draw(t, "claim"))}
				}
				p.Spec.Volumes = append(p.Spec.Volumes, v)
			}
		}
		return w
	})
}

func going[T client.Object](obj T) T {
	obj.SetDeletionTimestamp(&metav1.Time{})
	return obj
}

func one(t *rapid.T, what string, from ...string) string {
	return rapid.SampledFrom(from).Draw(t, what)
}

func randomClaim(t *rapid.T, i int) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("c%d", i), UID: types.UID(fmt.Sprintf("c%d", i))}}
	c.Spec.StorageClassName = new(one(t, "class", "late", "late", "now"))
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(one(t, "mode", "ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"))}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(one(t, "size", "1Gi", "2Gi"))}
	c.Status.Phase = corev1.ClaimPending
	switch one(t, "state", "new", "new", "selected", "bound", "bound") {
	case "selected":
		c.Annotations = map[string]string{"volume.kubernetes.io/selected-node": one(t, "selected", "n0", "n1")}
	case "bound":
		c.Spec.VolumeName, c.Status.Phase = fmt.Sprintf("v%d", rapid.IntRange(0, 2).Draw(t, "volume")), corev1.ClaimBound
	}
	return c
}

func randomVolume(t *rapid.T, i int) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("v%d", i)}}
	v.Spec.StorageClassName = one(t, "class", "late", "late", "other")
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOncePod}
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(one(t, "size", "1Gi", "2Gi"))}
	v.Status.Phase = corev1.VolumeAvailable
	if one(t, "kind", "csi", "csi", "local") == "csi" {
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: one(t, "driver", "disks", "files"), VolumeHandle: one(t, "handle", "a", "b", "c")}
	}
	if zone := one(t, "zone", "", "a", "b"); zone != "" {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
		}}}}
	}
	if zone := one(t, "label", "", "", "a", "b__c"); zone != "" {
		v.Labels = map[string]string{corev1.LabelTopologyZone: zone}
	}
	if one(t, "reserved", "", "", "yes") != "" {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: one(t, "for", "c0", "c1", "x")}
	}
	return v
}

func randomClass(t *rapid.T) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: one(t, "provisioner", "kubernetes.io/no-provisioner", "disks", "files")}
	c.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
	if zone := one(t, "allowed", "", "", "a"); zone != "" {
		c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelTopologyZone, Values: []string{zone}}}}}
	}
	return c
}

func randomDriver(t *rapid.T) *storagev1.CSIDriver {
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "disks"}}
	d.Spec.StorageCapacity, d.Spec.PreventPodSchedulingIfMissing = new(rapid.Bool().Draw(t, "tells capacity")), new(rapid.Bool().Draw(t, "prevents"))
	return d
}

func randomCapacity(t *rapid.T) *storagev1.CSIStorageCapacity {
	c := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "drivers", Name: "x"}, StorageClassName: "late"}
	c.Capacity = new(resource.MustParse(one(t, "room", "0", "1Gi", "5Gi")))
	if zone := one(t, "where", "", "a", "*"); zone == "*" {
		c.NodeTopology = &metav1.LabelSelector{}
	} else if zone != "" {
		c.NodeTopology = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelTopologyZone: zone}}
	}
	return c
}

func randomAttachment(t *rapid.T, nodes []*corev1.Node) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "disks", NodeName: rapid.SampledFrom(nodes).Draw(t, "attached to").Name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new(one(t, "attached", "v0", "v1"))},
	}}
}

func randomDrivers(t *rapid.T, node string) *storagev1.CSINode {
	n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	for _, name := range []string{"disks", "files"} {
		d := storagev1.CSINodeDriver{Name: name, NodeID: node}
		switch one(t, "limit of "+name, "none", "not there", "0", "1", "1") {
		case "not there":
			continue
		case "0":
			d.Allocatable = &storagev1.VolumeNodeResources{Count: new(int32(0))}
		case "1":
			d.Allocatable = &storagev1.VolumeNodeResources{Count: new(int32(1))}
		}
		n.Spec.Drivers = append(n.Spec.Drivers, d)
	}
	return n
}

func TestArgumentsOfVolumeBinding(t *testing.T) {
	for args, want := range map[string]string{
		`{"bindTimeoutSeconds": -1}`:                          "bindTimeoutSeconds",
		`{"bindTimeoutSeconds": "1"}`:                         "bindTimeoutSeconds",
		`{"bindTimeout": 1}`:                                  "bindTimeout",
		`{"shape": []}`:                                       "shape",
		`{"shape": [{"utilization": 101, "score": 1}]}`:       "shape[0].utilization",
		`{"shape": [{"utilization": 1, "score": 11}, {}]}`:    "shape[0].score",
		`{"shape": [{"utilization": 9}, {"utilization": 9}]}`: "shape[1].utilization",
	} {
		if _, err := (&builtin.VolumeBinding{}).Configure([]byte(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to say %q", args, err, want)
		}
	}
	got := configured(t, &builtin.VolumeBinding{}, `{"bindTimeoutSeconds": 7, "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}`)
	if got.BindTimeout.Seconds() != 7 || len(got.Shape) != 2 {
		t.Errorf("configured: %v %v", got.BindTimeout, got.Shape)
	}
}

// TestClaimsAreBounded has pods with claims that wait for them: each is compared with each volume.
func TestClaimsAreBounded(t *testing.T) {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: "disks", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}
	for _, tt := range []struct {
		claims, volumes int
		want            string
	}{
		{250, 1, ""},
		{251, 0, "251 of the pod's persistentvolumeclaims wait for it, which are more than the scheduler looks at, want at most 250"},
		{201, 5000, "201 of the pod's persistentvolumeclaims wait for it, which the scheduler does not compare with 5000 persistentvolumes, want at most 200"},
	} {
		w := plugintest.World{Objects: []client.Object{class}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
		for i := range tt.claims {
			c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("c", i)}}
			c.Spec.StorageClassName = &class.Name
			c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
			w.Objects = append(w.Objects, c)
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: c.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name}}})
		}
		for i := range tt.volumes {
			w.Objects = append(w.Objects, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("v", i)}})
		}
		_, v := (&builtin.VolumeBinding{}).PreFilter(t.Context(), plugin.NewPod(pod), &w.Cluster(false).Snapshot)
		if v.Reason != tt.want {
			t.Errorf("%d claims and %d volumes: %q, want %q", tt.claims, tt.volumes, v.Reason, tt.want)
		}
	}
}
