package clusters

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/names"
)

func TestLeaveHintsAtNodeOfThisMachineOnly(t *testing.T) {
	marked := func(mark string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "two", Annotations: map[string]string{names.Machine: mark}}}
	}
	const remove = "to remove the Node object: kubectl delete node two"
	for _, tt := range []struct {
		name string
		node *corev1.Node
		err  error
		want string
	}{
		{"own", marked("me"), nil, remove},
		{"another's", marked("you"), nil, "the Node object two is that of another machine by now: do not delete it"},
		{"deleted", nil, apierrors.NewNotFound(client.Nodes.GroupResource(), "two"), "the Node object two does not exist"},
		{"unknown", nil, errors.New("connection refused"), remove},
	} {
		if got := deleteHint("two", tt.node, tt.err, "me"); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
