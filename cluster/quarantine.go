package cluster

import (
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/quarantine"
	"github.com/sampan-io/sampan/internal/run"
)

// openQuarantine reads which objects the process before worked on when it ended. Without marks the cluster works as well.
func (c *cluster) openQuarantine() {
	q, err := quarantine.Open(filepath.Join(c.Profile.DataDir, "working"), c.Log)
	if err != nil {
		c.Log.Warn("objects that end the process will not be set aside", "err", err)
		return
	}
	c.quarantine = q
}

// quarantineTasks returns the part that makes Events of objects that are set aside.
func (c *cluster) quarantineTasks(api client.Interface) run.Stage {
	recorder := client.NewRecorder(api, "sampan", "", c.Log)
	c.quarantine.OnAside(func(part string, o metav1.Object) {
		if obj, ok := o.(client.Object); ok {
			recorder.Event(obj, corev1.EventTypeWarning, "SetAside",
				"The process ended while it worked on this object (%s); the %s leaves it alone until its specification, labels or annotations are changed", part, part)
		}
	})
	return run.Stage{{Name: "events about objects that are set aside", Run: recorder.Run}}
}
