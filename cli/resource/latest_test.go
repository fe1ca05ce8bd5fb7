package resource_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/client/clienttest"
)

func podObject(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

// inputs returns what a request names.
func inputs(t *testing.T, args ...string) []resource.Info {
	t.Helper()
	var infos []resource.Info
	for info, err := range resource.Stream(t.Context(), resource.NewMapper(cluster()), resource.Request{Args: args, Namespace: "default", Lazy: true}) {
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	return infos
}

func TestLatestReadsAnObjectAgain(t *testing.T) {
	s := clienttest.New(t, podObject("a"))
	infos := inputs(t, "pod", "a", "none")
	got, err := infos[0].Latest(t.Context(), s)
	if err != nil || got.Object.GetName() != "a" || got.Object.GetKind() != "Pod" || got.Object.GetUID() == "" {
		t.Errorf("Latest = %+v, %v", got, err)
	}
	if w := got.Mapping.WrittenAs(got.Object); w.String() != "pod/a" || w.UID == "" || w.ResourceVersion == "" || w.Namespace != "default" {
		t.Errorf("WrittenAs = %+v", w)
	}
	if _, err := infos[1].Latest(t.Context(), s); !apierrors.IsNotFound(err) {
		t.Errorf("Latest of nothing = %v", err)
	}
	if _, err := inputs(t, "pods")[0].Latest(t.Context(), s); err == nil {
		t.Error("Latest of a selection is content")
	}
}
