package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// notices are messages of the store and the node for the administrator, on their way to become Events.
type notices chan store.Notice

// newNotices has space for what happens until Events can be written. There are few notices, and
// each is in the log as well.
func newNotices() notices { return make(notices, 16) }

// add never blocks.
func (n notices) add(what store.Notice) {
	select {
	case n <- what:
	default:
	}
}

// noticeTasks returns the parts that make Events of notices: about the node, whose disk it is,
// or, if the nodes are simulated, about the namespace default.
func (c *cluster) noticeTasks(api client.Interface) run.Stage {
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: metav1.NamespaceDefault}
	if c.real() {
		about.Kind, about.Name = "Node", c.Settings.NodeName
	}
	recorder := client.NewRecorder(api, "sampan-store", "", c.Log)
	return run.Stage{
		{Name: "events about the store", Run: recorder.Run},
		{Name: "notices of the store", Run: func(ctx context.Context) error {
			for {
				select {
				case n := <-c.notices:
					kind := corev1.EventTypeNormal
					if n.Warning {
						kind = corev1.EventTypeWarning
					}
					recorder.EventFor(about, kind, n.Reason, "%s", n.Message)
				case <-ctx.Done():
					return nil
				}
			}
		}},
	}
}
