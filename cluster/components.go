package cluster

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/catalog"
)

// components returns the maker of ComponentStatuses, with upstream's names. The controllers and the scheduler are a part
// of this process and end with it, so they are healthy; a scheduler that is disabled is left out.
func (c *cluster) components(store httpserver.Store) operation.ComputeHandler {
	return func(context.Context, []catalog.Object) ([]catalog.Object, error) {
		out := []catalog.Object{componentStatus("controller-manager", nil), componentStatus("etcd-0", cmp.Or(store.Refused(), store.Full()))}
		if c.Settings.Controllers.RunsScheduler() {
			out = append(out, componentStatus("scheduler", nil))
		}
		return out, nil
	}
}

func componentStatus(name string, fault error) *corev1.ComponentStatus {
	condition := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}
	if fault != nil {
		condition.Status, condition.Message, condition.Error = corev1.ConditionFalse, "", fault.Error()
	}
	return &corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: name}, Conditions: []corev1.ComponentCondition{condition}}
}
