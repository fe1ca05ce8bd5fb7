package clusters

import (
	"errors"
	"net"
	"strings"
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

func TestPortOfTheNodeAgentInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not block
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	for _, where := range [][2]string{{"127.0.0.1:6443", ""}, {"https://127.0.0.1:6443", ""}, {"192.0.2.1:6443", "127.0.0.1"}} {
		if err := checkPort(where[0], where[1], port); err == nil || !strings.Contains(err.Error(), "one node of one cluster") {
			t.Errorf("%q: %v", where, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := checkPort("127.0.0.1:6443", "", port); err != nil {
		t.Errorf("a free port: %v", err)
	}
}
