package podspec

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// inEphemeral lists the fields that ephemeral containers may have. Ephemeral containers are for
// debugging: the pod must not depend on them.
var inEphemeral = map[string]bool{
	"Name":                     true,
	"Image":                    true,
	"Command":                  true,
	"Args":                     true,
	"WorkingDir":               true,
	"EnvFrom":                  true,
	"Env":                      true,
	"VolumeMounts":             true,
	"VolumeDevices":            true,
	"TerminationMessagePath":   true,
	"TerminationMessagePolicy": true,
	"ImagePullPolicy":          true,
	"SecurityContext":          true,
	"Stdin":                    true,
	"StdinOnce":                true,
	"TTY":                      true,
}

const notInEphemeral = "cannot be set for an Ephemeral Container"

// checkEphemeralContainers checks the ephemeral containers. names has the names of the other containers, and gets
// theirs as well.
func (c *checker) checkEphemeralContainers(at where, names map[string]bool) {
	if len(c.spec.EphemeralContainers) == 0 {
		return
	}
	others := map[string]bool{}
	for ctr := range containers(c.spec) {
		others[ctr.Name] = true
	}
	for i := range c.spec.EphemeralContainers {
		e, at := &c.spec.EphemeralContainers[i], at.index(i)
		c.checkContainer((*corev1.Container)(&e.EphemeralContainerCommon), at, names)
		if target := e.TargetContainerName; target != "" && !others[target] {
			c.add(field.NotFound(at.child("targetContainerName").path, target))
		}
		v := reflect.ValueOf(e.EphemeralContainerCommon)
		for f := range v.NumField() {
			if name := v.Type().Field(f).Name; !inEphemeral[name] && !v.Field(f).IsZero() {
				c.forbidden(at.child(strings.ToLower(name[:1])+name[1:]), notInEphemeral)
			}
		}
		for j, m := range e.VolumeMounts {
			at := at.child("volumeMounts").index(j)
			if m.SubPath != "" {
				c.forbidden(at.child("subPath"), notInEphemeral)
			}
			if m.SubPathExpr != "" {
				c.forbidden(at.child("subPathExpr"), notInEphemeral)
			}
		}
	}
}

// ValidateEphemeralUpdate returns the faults of a change of ephemeral containers: they may only be added.
// The specification itself is checked by [Validate].
func ValidateEphemeralUpdate(now, old []corev1.EphemeralContainer, at *field.Path) field.ErrorList {
	var r report
	byName := map[string]*corev1.EphemeralContainer{} // patches may change the order
	for i := range now {
		byName[now[i].Name] = &now[i]
	}
	for i := range old {
		was := &old[i]
		switch is := byName[was.Name]; {
		case is == nil:
			r.forbidden(where{at}, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", was.Name))
		case !equality.Semantic.DeepEqual(was, is):
			r.forbidden(where{at}, fmt.Sprintf("existing ephemeral containers %q may not be changed\n%s", was.Name,
				differentFields(&was.EphemeralContainerCommon, &is.EphemeralContainerCommon)))
		}
	}
	return r.errs
}
