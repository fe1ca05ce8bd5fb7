package admission_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestClaimsGetAClassAndGrow makes claims with and without a class, through the server.
func TestClaimsGetAClassAndGrow(t *testing.T) {
	s := serve(t)
	claim := func(name string, class *string) *corev1.PersistentVolumeClaim {
		return s.create(&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: class,
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}).(*corev1.PersistentVolumeClaim)
	}
	if c := claim("early", nil); c.Spec.StorageClassName != nil {
		t.Errorf("a claim has class %q, and there is none", *c.Spec.StorageClassName)
	}
	for name, grows := range map[string]bool{"plain": false, "usual": true} {
		class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "example.com/disks", AllowVolumeExpansion: &grows}
		if name == "usual" {
			class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
		}
		s.create(class)
	}
	for _, tt := range []struct {
		name  string
		class *string
		want  string
		grows bool
	}{
		{"default", nil, "usual", true},
		{"named", new("plain"), "plain", false},
		{"none", new(""), "", false},
		{"unknown", new("later"), "later", false},
	} {
		c := claim(tt.name, tt.class)
		if got := *c.Spec.StorageClassName; got != tt.want {
			t.Errorf("%s: class %q, want %q", tt.name, got, tt.want)
		}
		patch := func(text, part string) error {
			_, err := s.admin.Patch(t.Context(), resourceOf(c), "ship", tt.name, types.MergePatchType, []byte(text), metav1.PatchOptions{}, part)
			return err
		}
		if err := patch(`{"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}`, "status"); err != nil {
			t.Fatal(err)
		}
		switch err := patch(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`, ""); {
		case tt.grows && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case !tt.grows && !apierrors.IsForbidden(err):
			t.Errorf("%s: grew, or %v; want it to be forbidden", tt.name, err)
		}
	}
}

func TestVolumeAttributesClassIsProtectedFromTheBeginning(t *testing.T) {
	made, ok := serve(t).create(&storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fast"}, DriverName: "disks.example.com", Parameters: map[string]string{"speed": "1"},
	}).(*storagev1.VolumeAttributesClass)
	if !ok || len(made.Finalizers) != 1 || made.Finalizers[0] != "kubernetes.io/vac-protection" {
		t.Errorf("made %+v", made)
	}
}
