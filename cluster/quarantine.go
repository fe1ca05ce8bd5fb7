package cluster

import (
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/quarantine"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
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

// sweepQuarantine drops the copies set aside of objects that the store does not have any more.
func (c *cluster) sweepQuarantine(kinds *catalog.Catalog, objects *store.Store) {
	byType := map[string][]*catalog.Kind{}
	for _, k := range kinds.Kinds() {
		if !k.Answered() && !k.Untyped() {
			name := strings.TrimPrefix(fmt.Sprintf("%T", k.New()), "*")
			byType[name] = append(byType[name], k)
		}
	}
	c.quarantine.Sweep(func(kind, namespace, name string, uid types.UID) bool {
		for _, k := range byType[kind] {
			rec, err := objects.Get(k.Key(namespace, name))
			if err == nil && codec.ItemOf(k, rec.Key, rec.Value).Object().GetUID() == uid {
				return true
			}
		}
		return false
	})
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
