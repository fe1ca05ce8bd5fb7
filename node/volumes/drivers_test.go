package volumes

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/node/csi"
)

func TestDriverChangesOnlyItsPartOfTheNode(t *testing.T) {
	node := &corev1.Node{}
	node.Labels, node.Annotations = map[string]string{"mine": "1"}, map[string]string{"mine": "2", nodeIDs: `{"old":"n"}`}
	before, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		labels, ids, wantLabels, wantAnnotations map[string]string
	}{
		"comes with a topology": {
			map[string]string{"rack": "r1"},
			map[string]string{"new": "n"},
			map[string]string{"mine": "1", "rack": "r1"},
			map[string]string{"mine": "2", nodeIDs: `{"new":"n"}`},
		},
		"comes without a topology": {
			nil, map[string]string{"new": "n"}, map[string]string{"mine": "1"}, map[string]string{"mine": "2", nodeIDs: `{"new":"n"}`},
		},
		"goes": {nil, nil, map[string]string{"mine": "1"}, map[string]string{"mine": "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			patch, err := driverPatch(node, tt.labels, tt.ids)
			if err != nil {
				t.Fatal(err)
			}
			data, err := jsonpatch.MergePatch(before, patch)
			if err != nil {
				t.Fatal(err)
			}
			after := &corev1.Node{}
			if err := json.Unmarshal(data, after); err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(after.Labels, tt.wantLabels) || !maps.Equal(after.Annotations, tt.wantAnnotations) {
				t.Errorf("labels %v, annotations %v", after.Labels, after.Annotations)
			}
		})
	}
}

// TestLastingConflictIsAnError has each write of the registration of a driver fail that another client can make
// impossible.
func TestLastingConflictIsAnError(t *testing.T) {
	conflict := apierrors.NewConflict(corev1.Resource("nodes"), "n1", errors.New("changed"))
	for name, tt := range map[string]struct {
		refuse func(t *testing.T, r clienttest.Request, api *clienttest.Server) error
		want   string
	}{
		"none": {func(*testing.T, clienttest.Request, *clienttest.Server) error { return nil }, ""},
		"node": {func(_ *testing.T, r clienttest.Request, _ *clienttest.Server) error {
			if r.Verb == "patch" && r.Resource == "nodes" {
				return conflict
			}
			return nil
		}, "node n1: still in conflict after 10 tries"},
		"CSINode": {func(_ *testing.T, r clienttest.Request, _ *clienttest.Server) error {
			if r.Verb == "create" && r.Resource == "csinodes" {
				return conflict
			}
			return nil
		}, "CSINode n1: still in conflict after 10 tries"},
		"CSINode of another node": {func(t *testing.T, r clienttest.Request, api *clienttest.Server) error {
			if r.Verb == "get" && r.Resource == "csinodes" {
				api.Set(t, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
			}
			return nil
		}, "CSINode n1: still in conflict after 10 tries"},
	} {
		t.Run(name, func(t *testing.T) {
			api := clienttest.New(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
			api.Intercept(func(r clienttest.Request) error { return tt.refuse(t, r, api) })
			registered := make(chan struct{})
			close(registered)
			f := &Files{node: Node{Name: "n1", Client: api, Registered: registered}}
			err := f.installDriver(t.Context(), csi.Info{Driver: "disks.example", NodeID: "id", Topology: map[string]string{"rack": "r1"}})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
