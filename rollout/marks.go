package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/sampan-io/sampan/internal/names"
)

// The annotations of the controllers. The first four are kubectl's.
const (
	markNext     = "kubectl.kubernetes.io/next-controller-id" // on the old one: name of the new one
	markOriginal = "kubectl.kubernetes.io/original-replicas"  // on the old one
	markDesired  = "kubectl.kubernetes.io/desired-replicas"   // on the new one
	markSource   = "kubectl.kubernetes.io/update-source-id"   // on the new one: NAME:UID of the old one

	markWritten = names.RolloutReplicas // on both: the replicas that an updater wrote last
	markHash    = names.RolloutHash     // on the new one: hash of the wanted pod template
	markTaken   = names.RolloutTaken    // on the old one: it has taken over the pods of this new one
	markCleanup = names.RolloutCleanup  // on the old one: the clean-up policy
	markCanary  = names.RolloutCanaries // on the old one: the number of canaries
	markBack    = names.RolloutBack     // on the old one: the cause of an automatic rollback
	markOlds    = names.RolloutOlds     // on a controller whose pods are replaced: names of the pods to delete
	markHolder  = names.RolloutHolder   // on the old one: the Holder

	// markLast is kept after an update: its result and its controller, for a client that repeats the command because
	// the last response was lost.
	markLast = names.RolloutLast

	// markReplaced is kept after an update if the replaced pods belong to a deleted controller: NAME:UID, as in
	// markSource. Clients that wait until the old pods are deleted find them by it.
	markReplaced = names.RolloutReplaced

	// labelReleased is added to the selector and template of the new controller to release its pods: no pod has it.
	labelReleased = names.RolloutReleased
)

var marks = []string{ // removed at the end of an update
	markNext, markOriginal, markDesired, markSource,
	markWritten, markHash, markTaken, markCleanup, markCanary, markBack, markOlds, markHolder,
}

// mark sets an annotation of rc, which must be a copy.
func mark(rc *corev1.ReplicationController, key, value string) {
	if rc.Annotations == nil {
		rc.Annotations = map[string]string{}
	}
	rc.Annotations[key] = value
}

func markNumber(rc *corev1.ReplicationController, key string, n int32) {
	mark(rc, key, strconv.FormatInt(int64(n), 10))
}

// marked returns the number in an annotation of a controller.
func marked(rc *corev1.ReplicationController, key string) (n int32, found bool) {
	text, found := rc.Annotations[key]
	v, err := strconv.ParseInt(text, 10, 32)
	return int32(v), found && err == nil && v >= 0
}

func unmark(rc *corev1.ReplicationController) {
	for _, key := range marks {
		delete(rc.Annotations, key)
	}
	if len(rc.Annotations) == 0 {
		rc.Annotations = nil
	}
}

// The prefixes of the values of markLast, which the name of the old controller follows.
const (
	lastComplete = "complete:"
	lastBack     = "rolled-back:"
)

// underWay reports whether an update of the controller has begun and not ended.
func underWay(rc *corev1.ReplicationController) bool { return rc.Annotations[markNext] != "" }

// replacing reports whether the pods of a controller are being replaced by others
// of the same kind.
func replacing(rc *corev1.ReplicationController) bool {
	_, found := rc.Annotations[markOlds]
	return found
}

// sourceName returns the name of the controller whose pods rc replaces, or "".
func sourceName(rc *corev1.ReplicationController) string {
	name, _, _ := strings.Cut(rc.Annotations[markSource], ":")
	return name
}

func sourceID(rc *corev1.ReplicationController) string { return rc.Name + ":" + string(rc.UID) }

func replicas(rc *corev1.ReplicationController) int32 {
	if rc.Spec.Replicas == nil {
		return 1 // the API's default
	}
	return *rc.Spec.Replicas
}

// selector returns a controller's selector, which defaults to the labels of its template.
func selector(spec corev1.ReplicationControllerSpec) map[string]string {
	if len(spec.Selector) == 0 && spec.Template != nil {
		return spec.Template.Labels
	}
	return spec.Selector
}

func released(rc *corev1.ReplicationController) bool {
	_, is := rc.Spec.Selector[labelReleased]
	return is
}

// without returns a copy of m without the keys.
func without(m map[string]string, keys ...string) map[string]string {
	c := maps.Clone(m)
	for _, k := range keys {
		delete(c, k)
	}
	return c
}

func with(m map[string]string, key, value string) map[string]string {
	c := maps.Clone(m)
	if c == nil {
		c = map[string]string{}
	}
	c[key] = value
	return c
}

// bare returns a controller's selector and template without the labels that an update adds to distinguish old pods from new ones.
func bare(spec corev1.ReplicationControllerSpec, key string) (selector map[string]string, t *corev1.PodTemplateSpec) {
	t = spec.Template.DeepCopy()
	if t == nil {
		t = &corev1.PodTemplateSpec{}
	}
	t.Labels = without(t.Labels, key, labelReleased)
	return without(spec.Selector, key, labelReleased), t
}

// samePods reports whether two controllers create the same pods.
func samePods(a, b corev1.ReplicationControllerSpec, key string) bool {
	selectorA, a1 := bare(a, key)
	selectorB, b1 := bare(b, key)
	return apiequality.Semantic.DeepEqual(selectorA, selectorB) && apiequality.Semantic.DeepEqual(a1, b1)
}

// hash returns a hash of a controller's selector and template. An update does not change it.
func hash(spec corev1.ReplicationControllerSpec, key string) (string, error) {
	selector, template := bare(spec, key)
	text, err := json.Marshal(struct {
		S map[string]string
		T *corev1.PodTemplateSpec
	}{selector, template})
	if err != nil {
		return "", fmt.Errorf("hash of a pod template: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:5]), nil // 40 bits distinguish a few templates
}
