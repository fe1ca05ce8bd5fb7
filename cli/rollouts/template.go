package rollouts

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/sorting"
)

// none is printed for an empty value, as kubectl does.
const none = "<none>"

// A sheet is text whose lines have depths, two blanks each.
type sheet struct{ strings.Builder }

func (s *sheet) line(depth int, format string, args ...any) {
	s.WriteString(strings.Repeat("  ", depth))
	fmt.Fprintf(&s.Builder, format, args...)
	s.WriteByte('\n')
}

// column writes texts below each other, behind a head and a tab.
func (s *sheet) column(head string, texts []string) {
	if len(texts) == 0 {
		texts = []string{none}
	}
	for n, t := range texts {
		if n > 0 {
			head = ""
		}
		s.line(0, "%s\t%s", head, t)
	}
}

// templateText shows a pod template as kubectl does in rollout history --revision.
func templateText(t *corev1.PodTemplateSpec) string {
	s := &sheet{}
	s.line(0, "Pod Template:")
	s.column("  Labels:", pairs(t.Labels))
	if len(t.Annotations) > 0 {
		s.column("  Annotations:", annotationTexts(t.Annotations))
	}
	spec := t.Spec
	if spec.ServiceAccountName != "" {
		s.line(1, "Service Account:\t%s", spec.ServiceAccountName)
	}
	if len(spec.InitContainers) > 0 {
		s.containers("Init Containers:", spec.InitContainers)
	}
	s.containers("Containers:", spec.Containers)
	s.volumes(spec.Volumes)
	s.spread(spec.TopologySpreadConstraints)
	if spec.PriorityClassName != "" {
		s.line(1, "Priority Class Name:\t%s", spec.PriorityClassName)
	}
	s.column("  Node-Selectors:", pairs(spec.NodeSelector))
	s.column("  Tolerations:", tolerationTexts(spec.Tolerations))
	return s.String()
}

func pairs(m map[string]string) []string {
	var texts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		texts = append(texts, k+"="+m[k])
	}
	return texts
}

// longAnnotation is from which length on an annotation stands below its name.
const longAnnotation = 140

func annotationTexts(m map[string]string) []string {
	var texts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if k == corev1.LastAppliedConfigAnnotation {
			continue
		}
		value := strings.TrimSuffix(m[k], "\n")
		if len(k)+len(value)+2 <= longAnnotation && !strings.Contains(value, "\n") {
			texts = append(texts, k+": "+value)
			continue
		}
		texts = append(texts, k+":")
		for l := range strings.SplitSeq(value, "\n") {
			if len(l) > longAnnotation-2 {
				l = l[:longAnnotation-2] + "..."
			}
			texts = append(texts, "  "+l)
		}
	}
	return texts
}

func tolerationTexts(all []corev1.Toleration) []string {
	var texts []string
	for _, t := range sorting.SortedStable(slices.Values(all), func(a, b corev1.Toleration) int { return strings.Compare(a.Key, b.Key) }) {
		text := t.Key
		if t.Value != "" {
			text += "=" + t.Value
		}
		if t.Effect != "" {
			text += ":" + string(t.Effect)
		}
		if t.Operator == corev1.TolerationOpExists && t.Value == "" {
			if text != "" {
				text += " "
			}
			text += "op=Exists"
		}
		if t.TolerationSeconds != nil {
			text += fmt.Sprintf(" for %ds", *t.TolerationSeconds)
		}
		texts = append(texts, text)
	}
	return texts
}

func (s *sheet) containers(head string, all []corev1.Container) {
	if len(all) == 0 {
		head += " " + none
	}
	s.line(1, "%s", head)
	for _, c := range all {
		s.line(1, " %s:", c.Name)
		s.line(2, "Image:\t%s", c.Image)
		s.ports("Port", c.Ports, func(p corev1.ContainerPort) int32 { return p.ContainerPort })
		s.ports("Host Port", c.Ports, func(p corev1.ContainerPort) int32 { return p.HostPort })
		if c.SecurityContext != nil && c.SecurityContext.SeccompProfile != nil {
			p := c.SecurityContext.SeccompProfile
			s.line(2, "SeccompProfile:\t%s", p.Type)
			if p.Type == corev1.SeccompProfileTypeLocalhost && p.LocalhostProfile != nil {
				s.line(3, "LocalhostProfile:\t%s", *p.LocalhostProfile)
			}
		}
		s.words("Command:", c.Command)
		s.words("Args:", c.Args)
		s.quantities("Limits:", c.Resources.Limits)
		s.quantities("Requests:", c.Resources.Requests)
		s.probe("Liveness:", c.LivenessProbe)
		s.probe("Readiness:", c.ReadinessProbe)
		s.probe("Startup:", c.StartupProbe)
		s.sources(c.EnvFrom)
		s.environment(c)
		s.mounts(c)
	}
}

func (s *sheet) ports(head string, all []corev1.ContainerPort, number func(corev1.ContainerPort) int32) {
	var texts []string
	for _, p := range all {
		text := fmt.Sprintf("%d/%s", number(p), p.Protocol)
		if p.Name != "" {
			text += " (" + p.Name + ")"
		}
		texts = append(texts, text)
	}
	if len(texts) > 1 {
		head += "s"
	}
	s.line(2, "%s:\t%s", head, cmp.Or(strings.Join(texts, ", "), none))
}

func (s *sheet) words(head string, all []string) {
	if len(all) == 0 {
		return
	}
	s.line(2, "%s", head)
	for _, w := range all {
		for l := range strings.SplitSeq(w, "\n") {
			s.line(3, "%s", l)
		}
	}
}

func (s *sheet) quantities(head string, list corev1.ResourceList) {
	if len(list) == 0 {
		return
	}
	s.line(2, "%s", head)
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		s.line(3, "%s:\t%s", name, q.String())
	}
}

func (s *sheet) probe(head string, p *corev1.Probe) {
	if p == nil {
		return
	}
	what := "unknown"
	switch {
	case p.Exec != nil:
		what = fmt.Sprintf("exec %v", p.Exec.Command)
	case p.HTTPGet != nil:
		port := p.HTTPGet.Port.String()
		u := url.URL{Scheme: strings.ToLower(string(p.HTTPGet.Scheme)), Host: p.HTTPGet.Host, Path: p.HTTPGet.Path}
		if port != "" {
			u.Host = net.JoinHostPort(p.HTTPGet.Host, port)
		}
		what = "http-get " + u.String()
	case p.TCPSocket != nil:
		what = "tcp-socket " + p.TCPSocket.Host + ":" + p.TCPSocket.Port.String()
	case p.GRPC != nil:
		service := ""
		if p.GRPC.Service != nil {
			service = *p.GRPC.Service
		}
		what = fmt.Sprintf("grpc <pod>:%d %s", p.GRPC.Port, service)
	}
	s.line(2, "%s\t%s delay=%ds timeout=%ds period=%ds successThreshold=%d failureThreshold=%d",
		head, what, p.InitialDelaySeconds, p.TimeoutSeconds, p.PeriodSeconds, p.SuccessThreshold, p.FailureThreshold)
}

func (s *sheet) sources(all []corev1.EnvFromSource) {
	if len(all) == 0 {
		return
	}
	s.line(2, "Environment Variables from:")
	for _, e := range all {
		name, kind, optional := "", "", false
		switch {
		case e.ConfigMapRef != nil:
			name, kind, optional = e.ConfigMapRef.Name, "ConfigMap", yes(e.ConfigMapRef.Optional)
		case e.SecretRef != nil:
			name, kind, optional = e.SecretRef.Name, "Secret", yes(e.SecretRef.Optional)
		}
		if e.Prefix != "" {
			kind += " with prefix '" + e.Prefix + "'"
		}
		s.line(3, "%s\t%s\tOptional: %t", name, kind, optional)
	}
}

func yes(b *bool) bool { return b != nil && *b }

func (s *sheet) environment(c corev1.Container) {
	head := "Environment:"
	if len(c.Env) == 0 {
		head += "\t" + none
	}
	s.line(2, "%s", head)
	for _, e := range c.Env {
		from := e.ValueFrom
		switch {
		case from == nil:
			for n, l := range strings.Split(e.Value, "\n") {
				if n == 0 {
					l = e.Name + ":\t" + l
				} else {
					l = "\t" + l
				}
				s.line(3, "%s", l)
			}
		case from.FieldRef != nil:
			s.line(3, "%s:\t (%s:%s)", e.Name, from.FieldRef.APIVersion, from.FieldRef.FieldPath)
		case from.ResourceFieldRef != nil:
			s.line(3, "%s:\t%s (%s)", e.Name, resourceValue(c, from.ResourceFieldRef), from.ResourceFieldRef.Resource)
		case from.SecretKeyRef != nil:
			s.line(3, "%s:\t<set to the key '%s' in secret '%s'>\tOptional: %t", e.Name, from.SecretKeyRef.Key, from.SecretKeyRef.Name, yes(from.SecretKeyRef.Optional))
		case from.ConfigMapKeyRef != nil:
			s.line(3, "%s:\t<set to the key '%s' of config map '%s'>\tOptional: %t", e.Name, from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Name, yes(from.ConfigMapKeyRef.Optional))
		}
	}
}

// resourceValue returns the request or limit of a container, in units of the
// divisor and rounded up.
func resourceValue(c corev1.Container, ref *corev1.ResourceFieldSelector) string {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	list := map[string]corev1.ResourceList{"limits": c.Resources.Limits, "requests": c.Resources.Requests}[kind]
	is := corev1.ResourceName(name)
	switch {
	case kind != "limits" && kind != "requests":
		return ""
	case is != corev1.ResourceCPU && is != corev1.ResourceMemory && is != corev1.ResourceEphemeralStorage && !strings.HasPrefix(name, corev1.ResourceHugePagesPrefix):
		return ""
	}
	value, divisor := list[is], ref.Divisor
	if divisor.IsZero() {
		divisor = *quantity.NewQuantity(1, quantity.DecimalSI)
	}
	n := float64(value.Value()) / float64(divisor.Value())
	if is == corev1.ResourceCPU {
		n = float64(value.MilliValue()) / float64(divisor.MilliValue())
	}
	text := strconv.FormatInt(int64(math.Ceil(n)), 10)
	if text == "0" && (ref.Resource == "limits.cpu" || ref.Resource == "limits.memory") {
		return "node allocatable"
	}
	return text
}

func (s *sheet) mounts(c corev1.Container) {
	none := "\t" + none
	if len(c.VolumeMounts) > 0 {
		none = ""
	}
	s.line(2, "Mounts:%s", none)
	for _, m := range sorting.SortedStable(slices.Values(c.VolumeMounts), func(a, b corev1.VolumeMount) int { return strings.Compare(a.MountPath, b.MountPath) }) {
		how := "rw"
		if m.ReadOnly {
			how = "ro"
		}
		if m.SubPath != "" {
			how += fmt.Sprintf(",path=%q", m.SubPath)
		}
		s.line(3, "%s from %s (%s)", m.MountPath, m.Name, how)
	}
	if len(c.VolumeDevices) == 0 {
		return
	}
	s.line(2, "Devices:%s", none)
	for _, d := range sorting.SortedStable(slices.Values(c.VolumeDevices), func(a, b corev1.VolumeDevice) int { return strings.Compare(a.DevicePath, b.DevicePath) }) {
		s.line(3, "%s from %s", d.DevicePath, d.Name)
	}
}

func (s *sheet) spread(all []corev1.TopologySpreadConstraint) {
	var texts []string
	for _, c := range sorting.SortedStable(slices.Values(all), func(a, b corev1.TopologySpreadConstraint) int { return strings.Compare(a.TopologyKey, b.TopologyKey) }) {
		text := fmt.Sprintf("%s:%s when max skew %d is exceeded", c.TopologyKey, c.WhenUnsatisfiable, c.MaxSkew)
		if c.LabelSelector != nil {
			text += " for selector " + metav1.FormatLabelSelector(c.LabelSelector)
		}
		texts = append(texts, text)
	}
	for n, t := range texts {
		head := "Topology Spread Constraints:"
		if n > 0 {
			head = ""
		}
		s.line(1, "%s\t%s", head, t)
	}
}
