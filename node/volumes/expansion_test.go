package volumes

import (
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

// expandingClaim returns a claim for a volume of 9Gi that is to be expanded from 1Gi.
func expandingClaim(asks string, state corev1.ClaimResourceStatus, conditions ...corev1.PersistentVolumeClaimConditionType) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	storage := func(size string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	c := &corev1.PersistentVolumeClaim{}
	c.Spec.Resources.Requests, c.Status.Capacity = storage(asks), storage("1Gi")
	if state != "" {
		c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: state}
	}
	for _, kind := range conditions {
		c.Status.Conditions = append(c.Status.Conditions, corev1.PersistentVolumeClaimCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(100, 0),
		})
	}
	return c, &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{Capacity: storage("9Gi")}}
}

// changed returns a claim after a change.
func changed(t *testing.T, c *corev1.PersistentVolumeClaim, change claimChange) *corev1.PersistentVolumeClaim {
	t.Helper()
	if change == nil {
		return c
	}
	before, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"status": change})
	if err != nil {
		t.Fatal(err)
	}
	data, err := strategicpatch.StrategicMergePatch(before, patch, c)
	if err != nil {
		t.Fatal(err)
	}
	after := &corev1.PersistentVolumeClaim{}
	if err := json.Unmarshal(data, after); err != nil {
		t.Fatal(err)
	}
	return after
}

func TestExpansionIsDueWhenTheResizerLeavesIt(t *testing.T) {
	for state, want := range map[corev1.ClaimResourceStatus]bool{
		"": true,
		corev1.PersistentVolumeClaimNodeResizePending:          true,
		corev1.PersistentVolumeClaimNodeResizeInProgress:       true,
		corev1.PersistentVolumeClaimNodeResizeInfeasible:       false,
		corev1.PersistentVolumeClaimControllerResizeInProgress: false,
	} {
		c, pv := expandingClaim("9Gi", state)
		if got := expansionDue(c, pv); got != want {
			t.Errorf("%q: due %t, want %t", state, got, want)
		}
	}
	c, pv := expandingClaim("9Gi", corev1.PersistentVolumeClaimNodeResizePending)
	c.Status.Capacity = pv.Spec.Capacity
	if expansionDue(c, pv) {
		t.Error("due for a claim that has its size")
	}
}

func TestExpansionSaysHowFarItIs(t *testing.T) {
	c, pv := expandingClaim("9Gi", corev1.PersistentVolumeClaimNodeResizePending,
		corev1.PersistentVolumeClaimFileSystemResizePending, corev1.PersistentVolumeClaimVolumeModifyingVolume)
	c = changed(t, c, expansionBegun(c))
	if got := c.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; got != corev1.PersistentVolumeClaimNodeResizeInProgress {
		t.Errorf("begun: %q", got)
	}
	if expansionBegun(c) != nil {
		t.Error("begun twice")
	}
	c = changed(t, c, expansionDone(c, pv.Spec.Capacity[corev1.ResourceStorage], 10<<30))
	size := c.Status.Capacity[corev1.ResourceStorage]
	if size.String() != "10Gi" || len(c.Status.AllocatedResourceStatuses) > 0 || len(c.Status.Conditions) != 1 ||
		c.Status.Conditions[0].Type != corev1.PersistentVolumeClaimVolumeModifyingVolume {
		t.Errorf("done: %+v", c.Status)
	}
}

func TestExpansionThatFails(t *testing.T) {
	const failed = corev1.PersistentVolumeClaimNodeResizeError
	none := []corev1.PersistentVolumeClaimConditionType(nil)
	for name, tt := range map[string]struct {
		asks   string
		before []corev1.PersistentVolumeClaimConditionType
		err    error
		want   corev1.ClaimResourceStatus
		marked bool
	}{
		"tries again":               {"9Gi", none, status.Error(codes.PermissionDenied, "no"), corev1.PersistentVolumeClaimNodeResizeInProgress, true},
		"tries again after another": {"9Gi", []corev1.PersistentVolumeClaimConditionType{failed}, status.Error(codes.Internal, "no"), corev1.PersistentVolumeClaimNodeResizeInProgress, true},
		"gives up":                  {"9Gi", none, status.Error(codes.OutOfRange, "no"), corev1.PersistentVolumeClaimNodeResizeInfeasible, true},
		"gives up an outdated size": {
			"5Gi",
			[]corev1.PersistentVolumeClaimConditionType{failed},
			status.Error(codes.PermissionDenied, "no"),
			corev1.PersistentVolumeClaimNodeResizeInfeasible, true,
		},
		"tries an outdated size once": {"5Gi", none, status.Error(codes.PermissionDenied, "no"), corev1.PersistentVolumeClaimNodeResizeInProgress, true},
		"may go on":                   {"9Gi", none, status.Error(codes.DeadlineExceeded, "slow"), corev1.PersistentVolumeClaimNodeResizeInProgress, false},
		"was not asked":               {"9Gi", none, errors.New("no driver"), corev1.PersistentVolumeClaimNodeResizeInProgress, false},
		"is in use":                   {"9Gi", none, status.Error(codes.FailedPrecondition, "in use"), corev1.PersistentVolumeClaimNodeResizeInProgress, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, pv := expandingClaim(tt.asks, corev1.PersistentVolumeClaimNodeResizeInProgress, tt.before...)
			after := changed(t, c, expansionFailed(c, pv.Spec.Capacity[corev1.ResourceStorage], tt.err, time.Unix(200, 0)))
			if got := after.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; got != tt.want {
				t.Errorf("status %q, want %q", got, tt.want)
			}
			if marked := len(after.Status.Conditions) == 1; marked != tt.marked {
				t.Fatalf("conditions %+v", after.Status.Conditions)
			}
			if !tt.marked {
				return
			}
			since := metav1.Unix(200, 0)
			if tt.before != nil {
				since = metav1.Unix(100, 0)
			}
			o := after.Status.Conditions[0]
			if o.Type != failed || o.Status != corev1.ConditionTrue || !o.LastTransitionTime.Equal(&since) || o.Message != "failed to expand pvc with "+tt.err.Error() {
				t.Errorf("condition %+v", o)
			}
		})
	}
}

func TestExpansionThatFailsForAnOldResizer(t *testing.T) {
	c, pv := expandingClaim("9Gi", "")
	if change := expansionFailed(c, pv.Spec.Capacity[corev1.ResourceStorage], status.Error(codes.OutOfRange, "no"), time.Unix(200, 0)); change != nil {
		t.Errorf("the claim gets %v: its resizer would not begin again", change)
	}
}

// TestEndOfExpansionMeetsAChangedClaim has a claim that its user or its resizer changes while the driver is at work.
func TestEndOfExpansionMeetsAChangedClaim(t *testing.T) {
	const infeasible, resizer = corev1.PersistentVolumeClaimNodeResizeInfeasible, corev1.PersistentVolumeClaimControllerResizeInProgress
	refused := status.Error(codes.PermissionDenied, "no")
	for name, tt := range map[string]struct {
		edit  func(c *corev1.PersistentVolumeClaim)
		err   error // of the driver
		size  string
		state corev1.ClaimResourceStatus
	}{
		"expanded": {func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} }, nil, "9Gi", ""},
		"failed for a size that is not wanted any more": {
			func(c *corev1.PersistentVolumeClaim) {
				c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("5Gi")
			},
			refused, "1Gi", infeasible,
		},
		"the resizer has begun again": {
			func(c *corev1.PersistentVolumeClaim) {
				c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = resizer
			},
			nil, "1Gi", resizer,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, pv := expandingClaim("9Gi", corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeError)
			c.Namespace, c.Name, c.UID = "default", "data", "u1"
			api := clienttest.New(t, c)
			before := clienttest.Find(api, client.PersistentVolumeClaims, "default", "data")
			after := before.DeepCopy()
			tt.edit(after)
			api.Set(t, after)
			f := New(Node{Client: api, Log: slog.New(slog.DiscardHandler)})
			var err error
			if tt.err == nil {
				err = f.expanded(t.Context(), before, pv, 0)
			} else {
				err = f.notExpanded(t.Context(), before, pv, tt.err)
			}
			if err != nil {
				t.Fatal(err)
			}
			got := clienttest.Find(api, client.PersistentVolumeClaims, "default", "data")
			size := got.Status.Capacity[corev1.ResourceStorage]
			if state := got.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; size.String() != tt.size || state != tt.state {
				t.Errorf("size %s, status %q, want %s and %q", size.String(), state, tt.size, tt.state)
			}
			if got.Labels["a"] != after.Labels["a"] {
				t.Error("the change of the user is lost")
			}
		})
	}
	t.Run("deleted", func(t *testing.T) {
		c, pv := expandingClaim("9Gi", corev1.PersistentVolumeClaimNodeResizeInProgress)
		c.Namespace, c.Name, c.UID, c.ResourceVersion = "default", "data", "u1", "1"
		other := c.DeepCopy()
		other.UID = "u2"
		api := clienttest.New(t, other)
		f := New(Node{Client: api})
		if err := f.expanded(t.Context(), c, pv, 0); err != nil {
			t.Fatal(err)
		}
		got := clienttest.Find(api, client.PersistentVolumeClaims, "default", "data")
		if size := got.Status.Capacity[corev1.ResourceStorage]; size.String() != "1Gi" {
			t.Errorf("another claim with the name has the size %s", size.String())
		}
	})
}
