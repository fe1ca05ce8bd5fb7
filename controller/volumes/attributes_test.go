package volumes_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
)

func TestVolumeAttributesClassStaysWhileItIsNamed(t *testing.T) {
	class := func(name string) *storagev1.VolumeAttributesClass {
		return &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: "example.com/d", Parameters: map[string]string{"iops": "1"}}
	}
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new(""), VolumeAttributesClassName: new("wanted"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
		Status: corev1.PersistentVolumeClaimStatus{
			ModifyVolumeStatus: &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "target", Status: corev1.PersistentVolumeClaimModifyVolumeInProgress},
		},
	}
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "other"},
		Spec: corev1.PersistentVolumeSpec{
			VolumeAttributesClassName: new("current"), StorageClassName: "other", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		},
	}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		there := func(want ...string) {
			t.Helper()
			controllertest.Rest()
			all := clienttest.All(s, client.VolumeAttributesClasses, "")
			if len(all) != len(want) {
				t.Errorf("there are %d classes, want %v", len(all), want)
			}
			for _, name := range want {
				if clienttest.Find(s, client.VolumeAttributesClasses, "", name) == nil {
					t.Errorf("class %s is gone", name)
				}
			}
		}
		for _, c := range clienttest.All(s, client.VolumeAttributesClasses, "") {
			if len(c.Finalizers) != 1 || c.Finalizers[0] != "kubernetes.io/vac-protection" {
				t.Errorf("the finalizers of %s are %q", c.Name, c.Finalizers)
			}
			if err := client.VolumeAttributesClasses.Delete(t.Context(), s, "", c.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		there("wanted", "current", "target")
		s.Remove(t, clienttest.Find(s, client.PersistentVolumes, "", "other"))
		there("wanted", "target")
		s.Remove(t, clienttest.Find(s, client.PersistentVolumeClaims, "default", "data"))
		there()
	}, class("wanted"), class("current"), class("target"), class("unused"), c, v)
}
