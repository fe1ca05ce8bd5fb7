package manifest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// PodFlags describe a pod with one container. The zero value has no flags yet.
type PodFlags struct {
	image, pullPolicy string
	env               []string
	labels            string
	annotations       []string
	port              string
	restart           string
	command           bool
	privileged        bool
	stdin, tty        bool
	leaveOpen         bool
	expose            bool
}

// Add adds the flags, which set r.
func (r *PodFlags) Add(f *pflag.FlagSet) {
	f.StringVar(&r.image, "image", "", "image of the container (required)")
	f.StringVar(&r.pullPolicy, "image-pull-policy", "", "image pull policy: Always, IfNotPresent or Never (default: the server's)")
	f.StringArrayVar(&r.env, "env", nil, "environment variable of the container, as NAME=VALUE; may be repeated")
	f.StringVarP(&r.labels, "labels", "l", "", "labels of the pod, separated by commas (default run=NAME)")
	f.StringArrayVar(&r.annotations, "annotations", nil, "annotation of the pod, as NAME=VALUE; repeat the flag for several, a comma is part of the value")
	f.StringVar(&r.port, "port", "", "port that the container exposes")
	f.StringVar(&r.restart, "restart", "Always", "restart policy of the pod: Always, OnFailure or Never")
	f.BoolVar(&r.command, "command", false, "use the arguments after -- as the command instead of its arguments")
	f.BoolVar(&r.privileged, "privileged", false, "run the container in privileged mode")
	f.BoolVarP(&r.stdin, "stdin", "i", false, "keep the standard input of the container open")
	f.BoolVar(&r.leaveOpen, "leave-stdin-open", false, "with -i, keep the standard input of the container open after the first client has left")
	f.BoolVarP(&r.tty, "tty", "t", false, "allocate a terminal for the container")
	f.BoolVar(&r.expose, "expose", false, "create a Service for the port, too")
}

// Interactive reports whether the container's standard input is to stay open.
func (r *PodFlags) Interactive() bool { return r.stdin }

// Objects returns the pod and, if one is asked for, a Service for its port. Rest is what
// stands behind the name on the command line. An error is the fault of that.
func (r *PodFlags) Objects(name string, rest []string) (*corev1.Pod, *corev1.Service, error) {
	pod, err := r.pod(name, rest)
	if err != nil || !r.expose {
		return pod, nil, err
	}
	port := pod.Spec.Containers[0].Ports[0].ContainerPort
	service := serviceOf(name, "", corev1.ServicePort{Port: port, Protocol: corev1.ProtocolTCP, TargetPort: portNumber(port)})
	service.Labels, service.Spec.Selector = nil, pod.Labels
	if r.labels != "" {
		service.Labels = pod.Labels
	}
	return pod, service, nil
}

func (r *PodFlags) pod(name string, rest []string) (*corev1.Pod, error) {
	switch {
	case CheckImage(r.image) != nil:
		return nil, CheckImage(r.image)
	case r.tty && !r.stdin:
		return nil, errors.New("-i/--stdin is required for containers with -t/--tty=true")
	case r.expose && r.port == "":
		return nil, errors.New("--port must be set when exposing a service")
	}
	if r.command && len(rest) == 0 {
		return nil, errors.New("--command needs a command after --")
	}
	c := corev1.Container{Name: name, Image: r.image, Stdin: r.stdin, StdinOnce: r.stdin && !r.leaveOpen, TTY: r.tty}
	if r.command {
		c.Command = rest
	} else {
		c.Args = rest
	}
	if r.port != "" {
		n, err := strconv.ParseInt(r.port, 10, 32)
		if err != nil {
			return nil, errors.New("--port must be a number")
		}
		if len(validation.IsValidPortNum(int(n))) > 0 {
			return nil, fmt.Errorf("--port=%s: want a number from 1 to 65535", r.port)
		}
		c.Ports = []corev1.ContainerPort{{ContainerPort: int32(n)}} // it was checked
	}
	var err error
	if c.Env, err = environment(r.env); err != nil {
		return nil, err
	}
	if c.ImagePullPolicy, err = pullPolicy(r.pullPolicy); err != nil {
		return nil, err
	}
	if r.privileged {
		c.SecurityContext = &corev1.SecurityContext{Privileged: &r.privileged}
	}
	restart := corev1.RestartPolicy(r.restart)
	switch restart {
	case corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever:
	default:
		return nil, fmt.Errorf("invalid restart policy: %s, valid values are: Always, OnFailure, Never", r.restart)
	}
	labels := map[string]string{"run": name}
	if r.labels != "" {
		if labels, err = Pairs("label spec", strings.Split(r.labels, ",")); err != nil {
			return nil, err
		}
	}
	annotations, err := annotationsOf(r.annotations)
	if err != nil {
		return nil, err
	}
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{c}, DNSPolicy: corev1.DNSClusterFirst, RestartPolicy: restart},
	}, nil
}

// CheckImage returns the fault of the name of an image, or nil.
func CheckImage(image string) error {
	switch {
	case image == "":
		return errors.New("--image is required")
	case strings.ContainsAny(image, " \t\n"):
		return fmt.Errorf("invalid image name %q: invalid reference format", image)
	}
	return nil
}

// environment reads NAME=VALUE texts for a container.
func environment(texts []string) ([]corev1.EnvVar, error) {
	var env []corev1.EnvVar
	for _, e := range texts {
		key, value, ok := strings.Cut(e, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("invalid env: %s, want NAME=VALUE", e)
		}
		env = append(env, corev1.EnvVar{Name: key, Value: value})
	}
	return env, nil
}

func pullPolicy(text string) (corev1.PullPolicy, error) {
	switch p := corev1.PullPolicy(text); p {
	case "", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
		return p, nil
	}
	return "", fmt.Errorf("invalid image pull policy: %s, valid values are: Always, IfNotPresent, Never", text)
}

// annotationsOf reads the values of --annotations, NAME=VALUE each. Everything after the first = is the value, commas too.
func annotationsOf(texts []string) (map[string]string, error) {
	var m map[string]string
	var invalid []string
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			invalid = append(invalid, text)
			continue
		}
		if m == nil {
			m = map[string]string{}
		}
		m[name] = value
	}
	if len(invalid) > 0 {
		return nil, fmt.Errorf("invalid annotations format: %s", strings.Join(invalid, ", "))
	}
	return m, nil
}

// Pairs reads NAME=VALUE texts; what names them in errors.
func Pairs(what string, texts []string) (map[string]string, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	m := map[string]string{}
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("unexpected %s: %q, want NAME=VALUE", what, text)
		}
		m[key] = value
	}
	return m, nil
}
