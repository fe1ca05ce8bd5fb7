package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Unheeded returns a sentence for each thing that spec, which is valid, asks for and that
// the scheduler and the node agent of this version do not do yet. It would be a bad
// surprise later.
func Unheeded(spec *corev1.PodSpec, at *field.Path) (sentences []string) {
	say := func(at *field.Path, why string) { sentences = append(sentences, NoEffect(at, why)) }
	for i := range spec.InitContainers {
		c, at := &spec.InitContainers[i], at.Child("initContainers").Index(i)
		if c.RestartPolicy != nil {
			say(at.Child("restartPolicy"), "init containers run one after the other, before the pod")
		}
		unheededHandlers(c, at, say)
	}
	for i := range spec.Containers {
		unheededHandlers(&spec.Containers[i], at.Child("containers").Index(i), say)
	}
	if a := spec.Affinity; a != nil && a.PodAffinity != nil {
		say(at.Child("affinity", "podAffinity"), "the scheduler does not look at other pods")
	}
	if a := spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		say(at.Child("affinity", "podAntiAffinity"), "the scheduler does not look at other pods")
	}
	if len(spec.TopologySpreadConstraints) > 0 {
		say(at.Child("topologySpreadConstraints"), "the scheduler spreads pods over nodes alone")
	}
	if spec.RuntimeClassName != nil {
		say(at.Child("runtimeClassName"), "there is one container runtime")
	}
	return sentences
}

func unheededHandlers(c *corev1.Container, at *field.Path, say func(at *field.Path, why string)) {
	if c.LivenessProbe != nil {
		say(at.Child("livenessProbe"), "a container is restarted when its process ends")
	}
	if c.StartupProbe != nil {
		say(at.Child("startupProbe"), "a container counts as started when its process is")
	}
	if l := c.Lifecycle; l != nil && (l.PostStart != nil || l.PreStop != nil) {
		say(at.Child("lifecycle"), "no hooks are run")
	}
}

// NoEffect says that a field is stored and changes nothing, and what holds instead.
func NoEffect(at *field.Path, instead string) string {
	return fmt.Sprintf("%s: has no effect in this version: %s", at, instead)
}
