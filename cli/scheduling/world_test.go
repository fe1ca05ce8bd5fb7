package scheduling

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

// lists counts lists, and can have the tokens of pages expire.
type lists struct {
	client.Interface
	limits []int64
	expire bool
}

func (l *lists) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	l.limits = append(l.limits, opts.Limit)
	if l.expire && opts.Continue != "" {
		return nil, metav1.ListMeta{}, apierrors.NewResourceExpired("too old")
	}
	return l.Interface.List(ctx, gvr, namespace, opts)
}

func TestEachReadsPagesAndBeginsAgainWithoutWhenTheyExpire(t *testing.T) {
	var objs []client.Object
	for i := range 1100 {
		objs = append(objs, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%04d", i)}})
	}
	for _, tt := range []struct {
		expire bool
		limits []int64
	}{{false, []int64{500, 500, 500}}, {true, []int64{500, 500, 0}}} {
		server := &lists{Interface: clienttest.New(t, objs...), expire: tt.expire}
		var names []string
		err := each(t.Context(), server, client.Nodes.GroupVersionResource, func(n *corev1.Node) { names = append(names, n.Name) })
		if err != nil || len(names) != 1100 || len(slices.Compact(names)) != 1100 {
			t.Errorf("expire %v: %d nodes, %v, want 1100 different ones", tt.expire, len(names), err)
		}
		if !slices.Equal(server.limits, tt.limits) {
			t.Errorf("expire %v: limits %v, want %v", tt.expire, server.limits, tt.limits)
		}
	}
}
