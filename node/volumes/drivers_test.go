package volumes

import (
	"encoding/json"
	"maps"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
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
