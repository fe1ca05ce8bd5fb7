package crispec

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Objects finds what a pod refers to by name. Its errors are for users:
// `configmap "web" not found`.
type Objects interface {
	ConfigMap(namespace, name string) (*corev1.ConfigMap, error)
	Secret(namespace, name string) (*corev1.Secret, error)
}

// Facts are the values of a pod, its node and its cluster that environment variables and downward API volumes refer to.
type Facts struct {
	Pod         *corev1.Pod
	IPs         []string // the pod's
	HostIPs     []string
	Allocatable corev1.ResourceList // of the node: the limit of a container that has none
	Services    []*corev1.Service   // the services that the pod's environment may name
	Objects     Objects
	Files       Files // nil: no process reads the variables
}

// Environment returns the variables of one container, in order, and the same as a
// map for expansion. Of several with one name the last counts.
func (f Facts) Environment(c *corev1.Container) ([]*cri.KeyValue, map[string]string, error) {
	services := f.serviceVariables()
	files := newEnvFiles(f.Files)
	known := map[string]string{}
	var names []string
	total := 0
	set := func(name, value string) {
		if _, old := known[name]; !old {
			names = append(names, name)
		}
		known[name] = value
		total += len(name) + len(value)
	}
	for i := range c.EnvFrom {
		if err := f.envFrom(&c.EnvFrom[i], set); err != nil {
			return nil, nil, err
		}
		if total > maxTotal {
			return nil, nil, errTooLarge
		}
	}
	lookup := func(name string) (string, bool) {
		if v, ok := known[name]; ok {
			return v, true
		}
		v, ok := services[name]
		return v, ok
	}
	for i := range c.Env {
		e := &c.Env[i]
		if e.ValueFrom == nil {
			value, err := Expand(e.Value, lookup)
			if err != nil {
				return nil, nil, fmt.Errorf("environment variable %s %w", e.Name, err)
			}
			set(e.Name, value)
			if total > maxTotal {
				return nil, nil, errTooLarge
			}
			continue
		}
		value, found, err := f.value(e.ValueFrom, c, files)
		if err != nil {
			return nil, nil, err
		}
		if found {
			set(e.Name, value)
		}
		if total > maxTotal {
			return nil, nil, errTooLarge
		}
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if _, own := known[name]; !own {
			set(name, services[name])
		}
	}
	list := make([]*cri.KeyValue, len(names))
	for i, name := range names {
		list[i] = &cri.KeyValue{Key: name, Value: []byte(known[name])}
	}
	return list, known, nil
}

func (f Facts) envFrom(from *corev1.EnvFromSource, set func(name, value string)) error {
	switch {
	case from.ConfigMapRef != nil:
		ref := from.ConfigMapRef
		m, err := f.Objects.ConfigMap(f.Pod.Namespace, ref.Name)
		if err != nil {
			return optional(ref.Optional, err)
		}
		for _, key := range slices.Sorted(maps.Keys(m.Data)) {
			set(from.Prefix+key, m.Data[key])
		}
	case from.SecretRef != nil:
		ref := from.SecretRef
		s, err := f.Objects.Secret(f.Pod.Namespace, ref.Name)
		if err != nil {
			return optional(ref.Optional, err)
		}
		for _, key := range slices.Sorted(maps.Keys(s.Data)) {
			set(from.Prefix+key, string(s.Data[key]))
		}
	}
	return nil
}

// optional returns nil in place of err if the reference is optional.
func optional(flag *bool, err error) error {
	if flag != nil && *flag {
		return nil
	}
	return err
}

// value returns what a variable is set to; found is false if it is optional and
// there is nothing.
func (f Facts) value(from *corev1.EnvVarSource, c *corev1.Container, files *envFiles) (value string, found bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = f.Field(from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		value, err = f.Resource(from.ResourceFieldRef, c)
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		m, err := f.Objects.ConfigMap(f.Pod.Namespace, ref.Name)
		if err != nil {
			return "", false, optional(ref.Optional, err)
		}
		v, ok := m.Data[ref.Key]
		if !ok {
			return "", false, optional(ref.Optional, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, f.Pod.Namespace, ref.Name))
		}
		return v, true, nil
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		s, err := f.Objects.Secret(f.Pod.Namespace, ref.Name)
		if err != nil {
			return "", false, optional(ref.Optional, err)
		}
		v, ok := s.Data[ref.Key]
		if !ok {
			return "", false, optional(ref.Optional, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, f.Pod.Namespace, ref.Name))
		}
		return string(v), true, nil
	case from.FileKeyRef != nil:
		return files.value(from.FileKeyRef, c)
	default:
		return "", false, fmt.Errorf("unsupported valueFrom of an environment variable")
	}
	return value, err == nil, err
}

// Field returns a field of the pod as the downward API has it.
func (f Facts) Field(path string) (string, error) {
	pod := f.Pod
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(f.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(f.HostIPs, ","), nil
	case "status.podIP":
		return first(f.IPs), nil
	case "status.podIPs":
		return strings.Join(f.IPs, ","), nil
	}
	if key, ok := subscript(path, "metadata.labels"); ok {
		return pod.Labels[key], nil
	}
	if key, ok := subscript(path, "metadata.annotations"); ok {
		return pod.Annotations[key], nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// lines prints a map as the downward API does in files.
func lines(m map[string]string) string {
	var b strings.Builder
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(key + "=" + strconv.Quote(m[key]))
	}
	return b.String()
}

// subscript splits prefix['key'].
func subscript(path, prefix string) (string, bool) {
	rest, ok := strings.CutPrefix(path, prefix+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}

// Resource returns what a container asks for or may use, in units of the
// divisor, rounded up. Without a limit that is what the node has.
func (f Facts) Resource(ref *corev1.ResourceFieldSelector, c *corev1.Container) (string, error) {
	which, name, ok := strings.Cut(ref.Resource, ".")
	resource := corev1.ResourceName(name)
	list := c.Resources.Limits
	switch {
	case ok && which == "limits":
		if _, limited := list[resource]; !limited {
			list = f.Allocatable
		}
	case ok && which == "requests":
		list = c.Resources.Requests
	default:
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	q, divisor := list[resource], ref.Divisor
	if resource == corev1.ResourceCPU {
		d := int64(1000)
		if !divisor.IsZero() {
			d = divisor.MilliValue()
		}
		return strconv.FormatInt((q.MilliValue()+d-1)/d, 10), nil
	}
	d := int64(1)
	if !divisor.IsZero() {
		d = divisor.Value()
	}
	return strconv.FormatInt((q.Value()+d-1)/d, 10), nil
}

// serviceVariables returns the variables by which a pod finds services: those of
// its namespace, unless it declines, and always the API server's.
func (f Facts) serviceVariables() map[string]string {
	vars := map[string]string{}
	links := f.Pod.Spec.EnableServiceLinks == nil || *f.Pod.Spec.EnableServiceLinks
	// Its own namespace's services win over the API server's.
	for _, own := range []bool{false, true} {
		for _, s := range f.Services {
			api := s.Namespace == "default" && s.Name == "kubernetes"
			if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.Ports) == 0 {
				continue
			}
			if own && links && s.Namespace == f.Pod.Namespace || !own && api {
				serviceVariables(vars, s)
			}
		}
	}
	return vars
}

func serviceVariables(vars map[string]string, s *corev1.Service) {
	prefix := variable(s.Name)
	host := s.Spec.ClusterIP
	port := func(p *corev1.ServicePort) string { return strconv.Itoa(int(p.Port)) }
	vars[prefix+"_SERVICE_HOST"] = host
	vars[prefix+"_SERVICE_PORT"] = port(&s.Spec.Ports[0])
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.Name != "" {
			vars[prefix+"_SERVICE_PORT_"+variable(p.Name)] = port(p)
		}
		protocol := p.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		url := strings.ToLower(string(protocol)) + "://" + net.JoinHostPort(host, port(p))
		if i == 0 {
			vars[prefix+"_PORT"] = url
		}
		link := prefix + "_PORT_" + port(p) + "_" + strings.ToUpper(string(protocol))
		vars[link] = url
		vars[link+"_PROTO"] = strings.ToLower(string(protocol))
		vars[link+"_PORT"] = port(p)
		vars[link+"_ADDR"] = host
	}
}

func variable(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }

// maxExpanded is how long one variable or argument may be whose references are expanded, in bytes: the kernel executes no program
// with a longer one (execve(2), MAX_ARG_STRLEN). All of a container together are at most maxTotal long.
const (
	maxExpanded = 128 << 10
	maxTotal    = 4 << 20
)

// Expand replaces each $(NAME) by the result of lookup, and leaves unknown names as they
// are. $$ is an escaped $. It is an error if the result becomes too long: values may refer to values, and grow exponentially.
func Expand(text string, lookup func(name string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		if b.Len() > maxExpanded {
			return "", fmt.Errorf("is longer than %d bytes after its references were expanded", maxExpanded)
		}
		i := strings.IndexByte(text, '$')
		if i < 0 || i+1 == len(text) {
			b.WriteString(text)
			return b.String(), nil
		}
		b.WriteString(text[:i])
		switch rest := text[i+1:]; rest[0] {
		case '$':
			b.WriteByte('$')
			text = rest[1:]
		case '(':
			end := strings.IndexByte(rest, ')')
			if end < 0 {
				b.WriteString("$(")
				text = rest[1:]
				continue
			}
			if v, ok := lookup(rest[1:end]); ok {
				b.WriteString(v)
			} else {
				b.WriteString("$" + rest[:end+1])
			}
			text = rest[end+1:]
		default:
			b.WriteString(text[i : i+2])
			text = rest[1:]
		}
	}
}
