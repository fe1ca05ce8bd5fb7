package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Unheeded returns a sentence for each thing that spec, which is valid, asks for and that
// the scheduler and the node agent of this version do not do yet. It would be a bad
// surprise later.
func Unheeded(spec *corev1.PodSpec, at *field.Path) []string {
	if len(unheeded(spec, where{})) == 0 { // as with faults
		return nil
	}
	return unheeded(spec, where{at})
}

func unheeded(spec *corev1.PodSpec, at where) (sentences []string) {
	say := func(at where, why string) { sentences = append(sentences, NoEffect(at.path, why)) }
	for i := range spec.InitContainers {
		c, at := &spec.InitContainers[i], at.child("initContainers").index(i)
		if c.RestartPolicy != nil {
			say(at.child("restartPolicy"), "init containers run one after the other, before the pod")
		}
		unheededHandlers(c, at, say)
	}
	for i := range spec.Containers {
		c, at := &spec.Containers[i], at.child("containers").index(i)
		unheededHandlers(c, at, say)
	}
	if spec.RuntimeClassName != nil {
		say(at.child("runtimeClassName"), "there is one container runtime")
	}
	return sentences
}

func unheededHandlers(c *corev1.Container, at where, say func(at where, why string)) {
	if c.LivenessProbe != nil {
		say(at.child("livenessProbe"), "a container is restarted when its process ends")
	}
	if c.StartupProbe != nil {
		say(at.child("startupProbe"), "a container counts as started when its process is")
	}
	if l := c.Lifecycle; l != nil && (l.PostStart != nil || l.PreStop != nil) {
		say(at.child("lifecycle"), "no hooks are run")
	}
}

// NoEffect says that a field is stored and changes nothing, and what holds instead.
func NoEffect(at *field.Path, instead string) string {
	return fmt.Sprintf("%s: has no effect in this version: %s", at, instead)
}
