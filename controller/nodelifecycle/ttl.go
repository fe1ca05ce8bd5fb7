package nodelifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
)

// ttlName is the name of the controller that says for how long nodes may keep Secrets and ConfigMaps without asking again.
const ttlName = "ttl-controller"

// settling is how long the controller waits after a change, so that the nodes of a large cluster that register one after the
// other are each written once.
const settling = 5 * time.Second

// A ttlStep is the time for clusters of a size. The steps overlap, so that a cluster near a limit does not change its nodes with
// each node that comes and goes.
type ttlStep struct{ fewest, most, seconds int }

func ttlSteps() []ttlStep {
	return []ttlStep{{0, 100, 0}, {90, 500, 15}, {450, 1000, 30}, {900, 2000, 60}, {1800, int(^uint(0) >> 1), 300}}
}

// nextStep returns the index of the step for a number of nodes after the step at index now.
func nextStep(now, nodes int) int {
	steps := ttlSteps()
	for nodes > steps[now].most {
		now++
	}
	for nodes < steps[now].fewest {
		now--
	}
	return now
}

// ttls keeps the annotation of nodes.
type ttls struct {
	client client.Interface
	nodes  *cache.Cache[*corev1.Node]
	loop   *controller.Loop

	mu    sync.Mutex
	count int // guarded by mu; of nodes
	step  int // guarded by mu
}

func newTTLs(config controller.Config, nodes *cache.Cache[*corev1.Node]) *ttls {
	t := &ttls{client: config.Client, nodes: nodes}
	t.loop = controller.New(controller.Options{
		Name: ttlName, Reconcile: t.reconcile, Workers: config.Workers, Log: config.Log, Needs: []<-chan struct{}{nodes.Ready()},
	})
	nodes.Subscribe(func(before, after *corev1.Node) {
		changed := t.counted(before, after)
		switch {
		case changed:
			for _, node := range nodes.List("") {
				t.loop.AddAfter(controller.KeyOf(node), settling)
			}
		case after != nil && (before == nil || before.Annotations[corev1.ObjectTTLAnnotationKey] != after.Annotations[corev1.ObjectTTLAnnotationKey]):
			t.loop.AddAfter(controller.KeyOf(after), settling)
		}
	})
	return t
}

// counted counts a node that came or went, and reports whether the time for all nodes has changed.
func (t *ttls) counted(before, after *corev1.Node) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case before == nil:
		t.count++
	case after == nil:
		t.count--
	}
	was := t.step
	t.step = nextStep(was, t.count)
	return t.step != was
}

func (t *ttls) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	node, ok := t.nodes.Get("", key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	t.mu.Lock()
	want := strconv.Itoa(ttlSteps()[t.step].seconds)
	t.mu.Unlock()
	if node.Annotations[corev1.ObjectTTLAnnotationKey] == want {
		return controller.Result{}, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": node.UID, "annotations": map[string]string{corev1.ObjectTTLAnnotationKey: want},
	}})
	if err != nil {
		return controller.Result{}, err
	}
	now, err := client.Nodes.Patch(ctx, t.client, "", node.Name, types.StrategicMergePatchType, patch, "")
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return controller.Result{}, nil // it is gone, or another by now
	case err != nil:
		return controller.Result{}, fmt.Errorf("change ttl annotation of node %s: %w", node.Name, err)
	}
	return controller.Result{}, t.nodes.Await(ctx, now.ResourceVersion)
}
