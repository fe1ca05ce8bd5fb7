package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) checkEnv(ctr *corev1.Container, at where) {
	for i, from := range ctr.EnvFrom {
		at := at.child("envFrom").index(i)
		if from.Prefix != "" {
			c.each(at.child("prefix"), from.Prefix, validation.IsRelaxedEnvVarName(from.Prefix))
		}
		switch {
		case from.ConfigMapRef == nil && from.SecretRef == nil:
			c.invalid(at, "", "must specify one of: `configMapRef` or `secretRef`")
		case from.ConfigMapRef != nil && from.SecretRef != nil:
			c.invalid(at, "", "may not have more than one field specified at a time")
		}
		if from.ConfigMapRef != nil {
			c.name(at.child("configMapRef", "name"), from.ConfigMapRef.Name, nameOrPrefix)
		}
		if from.SecretRef != nil {
			c.name(at.child("secretRef", "name"), from.SecretRef.Name, nameOrPrefix)
		}
	}
	for i, e := range ctr.Env {
		at := at.child("env").index(i)
		c.name(at.child("name"), e.Name, validation.IsRelaxedEnvVarName)
		if e.ValueFrom != nil {
			c.checkEnvSource(e.Value, e.ValueFrom, at.child("valueFrom"))
		}
	}
}

// Fields of its pod that an environment variable may hold.
var envFields = sets.New("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
	"spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")

// Fields of its pod that a file may hold.
var fileFields = sets.New("metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid")

func (c *checker) checkEnvSource(value string, from *corev1.EnvVarSource, at where) {
	n := 0
	if from.FieldRef != nil {
		n++
		c.checkFieldRef(from.FieldRef, envFields, at.child("fieldRef"))
	}
	if from.ResourceFieldRef != nil {
		n++
		c.checkResourceRef(from.ResourceFieldRef, false, at.child("resourceFieldRef"))
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		n++
		c.checkKeyRef(ref.Name, ref.Key, at.child("configMapKeyRef"))
	}
	if ref := from.SecretKeyRef; ref != nil {
		n++
		c.checkKeyRef(ref.Name, ref.Key, at.child("secretKeyRef"))
	}
	if ref := from.FileKeyRef; ref != nil {
		n++
		c.checkFileRef(ref, at.child("fileKeyRef"))
	}
	switch {
	case n == 0:
		c.invalid(at, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`")
	case value != "":
		c.invalid(at, "", "may not be specified when `value` is not empty")
	case n > 1:
		c.invalid(at, "", "may not have more than one field specified at a time")
	}
}

// nameOrPrefix is the rule for names that may end in a dash, as upstream allows in envFrom.
func nameOrPrefix(name string) []string { return apivalidation.NameIsDNSSubdomain(name, true) }

func (c *checker) checkKeyRef(name, key string, at where) {
	if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
		c.each(at.child("name"), name, faults)
	}
	c.name(at.child("key"), key, validation.IsConfigMapKey)
}

func (c *checker) checkFileRef(ref *corev1.FileKeySelector, at where) {
	c.name(at.child("key"), ref.Key, validation.IsRelaxedEnvVarName)
	if ref.Path == "" {
		c.required(at.child("path"))
	} else {
		c.checkDescending(ref.Path, at.child("path"))
	}
	c.checkVolumeName(ref.VolumeName, at.child("volumeName"))
	if v := c.volumes[ref.VolumeName]; v != nil && v.EmptyDir == nil {
		c.invalid(at.child("volumeName"), ref.VolumeName, "referenced volume must be of type emptyDir")
	}
}

// checkFieldRef checks a reference to a field of the pod: one of the allowed
// ones or one label or annotation, as in metadata.labels['app'].
func (c *checker) checkFieldRef(ref *corev1.ObjectFieldSelector, allowed sets.Set[string], at where) {
	if ref.APIVersion == "" {
		c.required(at.child("apiVersion"))
		return
	}
	if ref.FieldPath == "" {
		c.required(at.child("fieldPath"))
		return
	}
	p := at.child("fieldPath")
	if ref.APIVersion != "v1" {
		c.invalid(p, ref.FieldPath, "error converting fieldPath: pod does not support field label conversion of version "+ref.APIVersion)
		return
	}
	base, key, ok := subscript(ref.FieldPath)
	if !ok {
		if !allowed.Has(ref.FieldPath) {
			if !envFields.Has(ref.FieldPath) && !fileFields.Has(ref.FieldPath) {
				c.invalid(p, ref.FieldPath, "error converting fieldPath: field label not supported: "+ref.FieldPath)
				return
			}
			c.add(field.NotSupported(p.path, ref.FieldPath, sets.List(allowed)))
		}
		return
	}
	switch base {
	case "metadata.annotations":
		c.each(p, key, validation.IsQualifiedName(strings.ToLower(key)))
	case "metadata.labels":
		c.each(p, key, validation.IsQualifiedName(key))
	default:
		c.invalid(p, ref.FieldPath, "does not support subscript")
	}
}

// subscript takes metadata.labels['key'] apart.
func subscript(path string) (base, key string, ok bool) {
	base, rest, ok := strings.Cut(path, "['")
	if !ok || !strings.HasSuffix(rest, "']") {
		return path, "", false
	}
	return base, strings.TrimSuffix(rest, "']"), true
}

// Resources of a container that a variable or file may hold.
var containerFields = sets.New("limits.cpu", "limits.memory", "limits.ephemeral-storage",
	"requests.cpu", "requests.memory", "requests.ephemeral-storage")

func (c *checker) checkResourceRef(ref *corev1.ResourceFieldSelector, inVolume bool, at where) {
	if inVolume && ref.ContainerName == "" {
		c.required(at.child("containerName"))
		return
	}
	if ref.Resource == "" {
		c.required(at.child("resource"))
		return
	}
	huge := strings.HasPrefix(ref.Resource, "limits."+corev1.ResourceHugePagesPrefix) || strings.HasPrefix(ref.Resource, "requests."+corev1.ResourceHugePagesPrefix)
	if !containerFields.Has(ref.Resource) && !huge {
		c.add(field.NotSupported(at.child("resource").path, ref.Resource, sets.List(containerFields)))
		return
	}
	c.checkDivisor(ref, at.child("divisor"))
}

var (
	cpuDivisors  = sets.New("1m", "1")
	byteDivisors = sets.New("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
)

func (c *checker) checkDivisor(ref *corev1.ResourceFieldSelector, at where) {
	if ref.Divisor.Cmp(resource.Quantity{}) == 0 {
		return
	}
	_, what, _ := strings.Cut(ref.Resource, ".")
	good := byteDivisors
	if what == string(corev1.ResourceCPU) {
		good = cpuDivisors
	}
	if !good.Has(ref.Divisor.String()) {
		c.invalid(at, ref.Divisor.String(), fmt.Sprintf("only divisor's values %s are supported with the %s resource", strings.Join(sets.List(good), ", "), what))
	}
}
