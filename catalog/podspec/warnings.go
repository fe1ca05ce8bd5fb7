package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/internal/podfeature"
)

// Warnings returns the warnings about a pod or a template of pods that is valid: fields that are out of date or
// ambiguous, in the words of Kubernetes, and fields that Sampan's node agent ignores. The path at is that of the template;
// nil is a pod. The kind and name are those of the object that is written.
func Warnings(kind, name string, meta *metav1.ObjectMeta, spec *corev1.PodSpec, at *field.Path) []string {
	w := warner{meta: meta, spec: spec, at: at, inner: at.Child("spec")}
	w.warnOfPlacement()
	w.warnOfAnnotations()
	w.warnOfVolumes()
	w.warnOfLists()
	w.warnOfContainers()
	w.warnOfPorts()
	w.warnOfLife()
	return append(w.all, podfeature.Warnings(kind, name, podfeature.Check(spec, w.inner))...)
}

// NameWarnings returns the warning that a name is no DNS label, which the names of pods and hosts should be.
func NameWarnings(name, use string) []string {
	faults := validation.IsDNS1123Label(name)
	if len(faults) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("metadata.name: this is used in %s, which can result in surprising behavior; a DNS label is recommended: %v", use, faults)}
}

// The uses of the names of pods and those of their owners.
const (
	InHostname  = "the Pod's hostname"
	InHostnames = "Pod names and hostnames"
)

// A user who gets mostWarnings has enough of them: an answer has room for 4 KiB. What is compared with each other is compared up to
// mostCompared of a kind: a pod can have a hundred thousand ports.
const (
	mostWarnings = 256
	mostCompared = 1000
)

// A warner collects warnings.
type warner struct {
	meta  *metav1.ObjectMeta
	spec  *corev1.PodSpec
	at    *field.Path // of the template
	inner *field.Path // of the spec
	all   []string
}

func (w *warner) warn(at *field.Path, format string, args ...any) {
	w.all = append(w.all, at.String()+": "+fmt.Sprintf(format, args...))
}

var oldNodeLabels = map[string]string{
	"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"failure-domain.beta.kubernetes.io/region":      `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	"failure-domain.beta.kubernetes.io/zone":        `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	"beta.kubernetes.io/instance-type":              `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"app.kubernetes.io/created-by":                  `deprecated since v1.9`,
	"scheduler.alpha.kubernetes.io/preferAvoidPods": `deprecated since v1.22; use Taints and Tolerations instead`,
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
}

// OldNodeLabel returns why a label of nodes is out of date, or "".
func OldNodeLabel(key string) string { return oldNodeLabels[key] }

// TermWarnings returns warnings about a node selector term. Values that can't be those of labels are legal in preferences.
func TermWarnings(t *corev1.NodeSelectorTerm, preferred bool, at *field.Path) (all []string) {
	for i, e := range t.MatchExpressions {
		at := at.Child("matchExpressions").Index(i)
		if old := OldNodeLabel(e.Key); old != "" {
			all = append(all, fmt.Sprintf("%s: %s is %s", at.Child("key"), e.Key, old))
		}
		for j, v := range e.Values {
			if !preferred {
				break
			}
			for _, fault := range validation.IsValidLabelValue(v) {
				all = append(all, fmt.Sprintf("%s: %s is invalid, %s", at.Child("values").Index(j), v, fault))
			}
		}
	}
	return all
}

// ClaimWarnings returns warnings about the spec of a claim.
func ClaimWarnings(s *corev1.PersistentVolumeClaimSpec, at *field.Path) []string {
	w := warner{inner: at}
	w.warnOfFraction(s.Resources.Requests, corev1.ResourceStorage, place{}, "resources", "requests")
	w.warnOfFraction(s.Resources.Limits, corev1.ResourceStorage, place{}, "resources", "limits")
	return w.all
}

// A place is that of a container in a spec; nothing is the spec itself. Its path is made for a warning, which most pods do not get.
type place struct {
	list  string
	index int
}

func (p place) in(spec *field.Path) *field.Path {
	if p.list == "" {
		return spec
	}
	return spec.Child(p.list).Index(p.index)
}

// warnOfFraction warns of a list that is below a place.
func (w *warner) warnOfFraction(list corev1.ResourceList, name corev1.ResourceName, p place, below ...string) {
	if q, ok := list[name]; ok && q.MilliValue()%1000 != 0 {
		w.warn(p.in(w.inner).Child(below[0], below[1:]...).Key(string(name)), "fractional byte value %q is invalid, must be an integer", q.String())
	}
}

const nullSelector = "a null labelSelector results in matching no pod"

func (w *warner) warnOfPlacement() {
	for _, key := range slices.Sorted(maps.Keys(w.spec.NodeSelector)) {
		if old := OldNodeLabel(key); old != "" {
			w.warn(w.inner.Child("nodeSelector").Key(key), "%s", old)
		}
	}
	if a := nodeAffinity(w.spec); a != nil {
		affinity := w.inner.Child("affinity")
		for i := range requiredTerms(a) {
			w.all = append(w.all, TermWarnings(&requiredTerms(a)[i], false, affinity.Child("nodeAffinity", required, "nodeSelectorTerms").Index(i))...)
		}
		for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
			t := &a.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference
			w.all = append(w.all, TermWarnings(t, true, affinity.Child("nodeAffinity", preferred).Index(i).Child("preference"))...)
		}
	}
	for i, c := range w.spec.TopologySpreadConstraints {
		at := w.inner.Child("topologySpreadConstraints").Index(i)
		if old := OldNodeLabel(c.TopologyKey); old != "" {
			w.warn(at.Child("topologyKey"), "%s is %s", c.TopologyKey, old)
		}
		if c.LabelSelector == nil {
			w.warn(at.Child("labelSelector"), nullSelector)
		}
	}
	if w.spec.Affinity == nil {
		return
	}
	affinity := w.inner.Child("affinity")
	if a := w.spec.Affinity.PodAffinity; a != nil {
		w.warnOfTerms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, affinity.Child("podAffinity"))
	}
	if a := w.spec.Affinity.PodAntiAffinity; a != nil {
		w.warnOfTerms(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, affinity.Child("podAntiAffinity"))
	}
}

func (w *warner) warnOfTerms(must []corev1.PodAffinityTerm, should []corev1.WeightedPodAffinityTerm, at *field.Path) {
	for i := range must {
		if must[i].LabelSelector == nil {
			w.warn(at.Child(required).Index(i).Child("labelSelector"), nullSelector)
		}
	}
	for i := range should {
		if should[i].PodAffinityTerm.LabelSelector == nil {
			w.warn(at.Child(preferred).Index(i).Child("podAffinityTerm", "labelSelector"), nullSelector)
		}
	}
}

func (w *warner) warnOfAnnotations() {
	if len(w.meta.Annotations) == 0 {
		return
	}
	at := w.at.Child("metadata", "annotations")
	for _, old := range [][2]string{
		{"scheduler.alpha.kubernetes.io/critical-pod", `non-functional in v1.16+; use the "priorityClassName" field instead`},
		{"security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
		{"security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
	} {
		if _, has := w.meta.Annotations[old[0]]; has {
			w.warn(at.Key(old[0]), "%s", old[1])
		}
	}
	if _, has := w.meta.Annotations[corev1.SeccompPodAnnotationKey]; has && (w.spec.SecurityContext == nil || w.spec.SecurityContext.SeccompProfile == nil) {
		w.warn(at.Key(corev1.SeccompPodAnnotationKey), oldSeccomp)
	}
}

const (
	oldSeccomp  = `non-functional in v1.27+; use the "seccompProfile" field instead`
	oldAppArmor = `deprecated since v1.30; use the "appArmorProfile" field instead`
)

func (w *warner) warnOfVolumes() {
	for i := range w.spec.Volumes {
		v := &w.spec.Volumes[i]
		for _, old := range OldVolumes(&v.VolumeSource) {
			w.warn(w.inner.Child("volumes").Index(i).Child(old.Field), "%s", old.Why)
		}
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			at := w.inner.Child("volumes").Index(i).Child("ephemeral", "volumeClaimTemplate", "spec")
			w.all = append(w.all, ClaimWarnings(&v.Ephemeral.VolumeClaimTemplate.Spec, at)...)
		}
	}
	w.all = append(w.all, overlaps(w.spec.Volumes)...)
}

// An OldVolume is a source of volumes that Kubernetes no longer supports.
type OldVolume struct{ Field, Why string }

// Why sources of volumes are out of date.
const (
	gone116 = "deprecated in v1.11, non-functional in v1.16+"
	gone122 = "deprecated in v1.16, non-functional in v1.22+"
	gone125 = "deprecated in v1.22, non-functional in v1.25+"
	gone126 = "deprecated in v1.25, non-functional in v1.26+"
	gone131 = "deprecated in v1.28, non-functional in v1.31+"
)

// OldVolumes returns which sources of a volume are out of date.
func OldVolumes(s *corev1.VolumeSource) (all []OldVolume) {
	for _, old := range []struct {
		is         bool
		field, why string
	}{
		{s.PhotonPersistentDisk != nil, "photonPersistentDisk", gone116},
		{s.GitRepo != nil, "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"},
		{s.ScaleIO != nil, "scaleIO", gone122},
		{s.Flocker != nil, "flocker", gone125},
		{s.StorageOS != nil, "storageOS", gone125},
		{s.Quobyte != nil, "quobyte", gone125},
		{s.Glusterfs != nil, "glusterfs", gone126},
		{s.CephFS != nil, "cephfs", gone131},
		{s.RBD != nil, "rbd", gone131},
	} {
		if old.is {
			all = append(all, OldVolume{old.field, old.why})
		}
	}
	return all
}

func (w *warner) warnOfLists() {
	seen := map[string]bool{}
	for i, a := range w.spec.HostAliases {
		at := w.inner.Child("hostAliases").Index(i).Child("ip")
		if seen[a.IP] {
			w.warn(at, "duplicate ip %q", a.IP)
		}
		seen[a.IP] = true
		w.all = append(w.all, validation.GetWarningsForIP(at, a.IP)...)
	}
	clear(seen)
	for i, s := range w.spec.ImagePullSecrets {
		at := w.inner.Child("imagePullSecrets").Index(i).Child("name")
		if seen[s.Name] {
			w.warn(at, "duplicate name %q", s.Name)
		}
		if seen[s.Name] = true; s.Name == "" {
			w.warn(at, "invalid empty name %q", s.Name)
		}
	}
	if w.spec.DNSConfig != nil {
		for i, ip := range w.spec.DNSConfig.Nameservers {
			w.all = append(w.all, validation.GetWarningsForIP(w.inner.Child("dnsConfig", "nameservers").Index(i), ip)...)
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		w.warnOfFraction(w.spec.Overhead, name, place{}, "overhead")
	}
}

// containers yields all containers with their places.
func (w *warner) containers(yield func(*corev1.Container, place) bool) {
	for i := range w.spec.InitContainers {
		if !yield(&w.spec.InitContainers[i], place{"initContainers", i}) {
			return
		}
	}
	for i := range w.spec.Containers {
		if !yield(&w.spec.Containers[i], place{"containers", i}) {
			return
		}
	}
	for i := range w.spec.EphemeralContainers {
		if !yield((*corev1.Container)(&w.spec.EphemeralContainers[i].EphemeralContainerCommon), place{"ephemeralContainers", i}) {
			return
		}
	}
}

func (w *warner) warnOfContainers() {
	outdated := false
	for key := range w.meta.Annotations {
		outdated = outdated || strings.HasPrefix(key, corev1.SeccompContainerAnnotationKeyPrefix) || strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
	}
	for c, at := range w.containers {
		if outdated {
			w.warnOfProfiles(c)
		}
		for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			w.warnOfFraction(c.Resources.Limits, name, at, "resources", "limits")
			w.warnOfFraction(c.Resources.Requests, name, at, "resources", "requests")
		}
		seen := make(map[string]bool, len(c.Env))
		for i := range c.Env {
			e := &c.Env[i]
			if seen[e.Name] && hides(e) {
				w.warn(at.in(w.inner).Child("env").Index(i), "hides previous definition of %q, which may be dropped when using apply", e.Name)
			}
			seen[e.Name] = true
		}
	}
}

// warnOfProfiles warns of annotations that fields have taken the place of.
func (w *warner) warnOfProfiles(c *corev1.Container) {
	annotations := w.at.Child("metadata", "annotations")
	if key := corev1.SeccompContainerAnnotationKeyPrefix + c.Name; w.has(key) && (c.SecurityContext == nil || c.SecurityContext.SeccompProfile == nil) {
		w.warn(annotations.Key(key), oldSeccomp)
	}
	key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
	if w.at != nil && w.has(key) && (c.SecurityContext == nil || c.SecurityContext.AppArmorProfile == nil) && !sameAppArmor(w.meta.Annotations[key], w.spec.SecurityContext) {
		w.warn(annotations.Key(key), oldAppArmor)
	}
}

// hides reports whether a variable does not use the one of the same name before it.
func hides(e *corev1.EnvVar) bool {
	itself := "$(" + e.Name + ")"
	return e.ValueFrom != nil || e.Value == itself || !strings.Contains(e.Value, itself)
}

func (w *warner) has(annotation string) bool {
	_, has := w.meta.Annotations[annotation]
	return has
}

// sameAppArmor reports whether an annotation says the same as the profile of the pod.
func sameAppArmor(annotation string, s *corev1.PodSecurityContext) bool {
	if s == nil || s.AppArmorProfile == nil {
		return false
	}
	p := s.AppArmorProfile
	switch {
	case annotation == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return p.Type == corev1.AppArmorProfileTypeUnconfined
	case annotation == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return p.Type == corev1.AppArmorProfileTypeRuntimeDefault
	}
	name, local := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	return local && p.Type == corev1.AppArmorProfileTypeLocalhost && p.LocalhostProfile != nil && *p.LocalhostProfile == name
}

func (w *warner) warnOfPorts() {
	type placed struct {
		at   *field.Path
		port corev1.ContainerPort
	}
	all, names := map[string][]placed{}, map[string]*field.Path{}
	var named []string
	ports := 0
	for c, at := range w.containers {
		if ports += len(c.Ports); ports > mostCompared {
			return
		}
		for i, p := range c.Ports {
			at := at.in(w.inner).Child("ports").Index(i)
			if p.HostIP != "" && p.HostPort == 0 {
				w.warn(at, "hostIP set without hostPort: %+v", p)
			}
			key := fmt.Sprintf("%d/%s", p.ContainerPort, p.Protocol)
			for _, other := range all[key] {
				o := other.port
				switch {
				case len(w.all) >= mostWarnings:
				case p.HostIP == o.HostIP && p.HostPort == o.HostPort:
					w.warn(at, "duplicate port definition with %s", other.at)
				case p.HostPort == 0 || o.HostPort == 0:
					w.warn(at, "overlapping port definition with %s", other.at)
				case p.HostPort == o.HostPort && (p.HostIP == "") != (o.HostIP == ""):
					w.warn(at, "dangerously ambiguous port definition with %s", other.at)
				}
			}
			all[key] = append(all[key], placed{at, p})
			if other := names[p.Name]; p.Name != "" && other != nil {
				named = append(named, fmt.Sprintf("%s: duplicate port name %q with %s, services and probes that select ports by name will use %s", at, p.Name, other, other))
			} else if p.Name != "" {
				names[p.Name] = at
			}
		}
	}
	w.all = append(w.all, named...)
}

func (w *warner) warnOfLife() {
	if g := w.spec.TerminationGracePeriodSeconds; g != nil && *g < 0 {
		w.warn(w.inner.Child("terminationGracePeriodSeconds"), "must be >= 0; negative values are invalid and will be treated as 1")
	}
}
