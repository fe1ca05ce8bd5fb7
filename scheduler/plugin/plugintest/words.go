package plugintest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/client"
)

// Node makes a node from words, the first of which is its name; it panics where they make no sense.
//
//	NAME [cpu=N] [memory=N] [pods=N] [has=RESOURCE:N…] [image=NAME:BYTES…] [cordoned]
//	     [taint=KEY=VALUE:EFFECT…] [LABEL=VALUE…] [node=YAML to the end of the line]
//
// It has 8 CPUs, 32Gi and room for 110 pods, and the label kubernetes.io/hostname.
func Node(words ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: words[0], UID: types.UID(words[0]), Labels: map[string]string{corev1.LabelHostname: words[0]}}}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	for i, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "cpu", "memory", "pods":
			n.Status.Allocatable[corev1.ResourceName(k)] = resource.MustParse(v)
		case "has":
			name, amount := amountOf(v)
			n.Status.Allocatable[name] = amount
		case "image":
			name, size := amountOf(v)
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{string(name)}, SizeBytes: size.Value()})
		case "cordoned":
			n.Spec.Unschedulable = true
		case "taint":
			rest, effect, _ := strings.Cut(v, ":")
			key, value, _ := strings.Cut(rest, "=")
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
		case "node":
			must(yaml.UnmarshalStrict([]byte(rest(v, words[i+2:])), n))
			return n
		default:
			n.Labels[k] = v
		}
	}
	return n
}

// Pod makes a pod from words, the first of which is its name, with or without a namespace; it panics where
// they make no sense.
//
//	[NAMESPACE/]NAME [cpu=N] [memory=N] [asks=RESOURCE:N…] [port=N…] [image=NAME] [owner=[KIND/]NAME] [on=NODE]
//	     [label=KEY=VALUE…] [select=KEY=VALUE…] [tolerate=KEY…] [priority=N] [never-preempts] [gate=NAME…]
//	     [age=DURATION] [spec=YAML to the end of the line]
//
// Its UID is its namespace and name. The YAML is merged into the spec; its part about containers
// replaces them.
func Pod(words ...string) *corev1.Pod {
	namespace, name, ok := strings.Cut(words[0], "/")
	if !ok {
		namespace, name = metav1.NamespaceDefault, words[0]
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)}}
	p.Spec.SchedulerName = corev1.DefaultSchedulerName
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	c := &p.Spec.Containers[0]
	for i, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "cpu", "memory", "asks":
			var amount resource.Quantity
			if k == "asks" {
				var name corev1.ResourceName
				name, amount = amountOf(v)
				k = string(name)
			} else {
				amount = resource.MustParse(v)
			}
			if c.Resources.Requests == nil {
				c.Resources.Requests = corev1.ResourceList{}
			}
			c.Resources.Requests[corev1.ResourceName(k)] = amount
		case "port":
			port := int32(number(v))
			c.Ports = append(c.Ports, corev1.ContainerPort{HostPort: port, ContainerPort: port})
		case "image":
			c.Image = v
		case "owner":
			kind, name, ok := strings.Cut(v, "/")
			if !ok {
				kind, name = "Owner", v
			}
			version := map[string]string{"Owner": "example.com/v1", "ReplicationController": "v1", "ReplicaSet": "apps/v1"}[kind]
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, UID: types.UID(v), Controller: new(true)}}
		case "on":
			p.Spec.NodeName = v
		case "label":
			key, value, _ := strings.Cut(v, "=")
			if p.Labels == nil {
				p.Labels = map[string]string{}
			}
			p.Labels[key] = value
		case "select":
			key, value, _ := strings.Cut(v, "=")
			if p.Spec.NodeSelector == nil {
				p.Spec.NodeSelector = map[string]string{}
			}
			p.Spec.NodeSelector[key] = value
		case "tolerate":
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: v, Operator: corev1.TolerationOpExists})
		case "priority":
			p.Spec.Priority = new(int32(number(v)))
		case "never-preempts":
			p.Spec.PreemptionPolicy = new(corev1.PreemptNever)
		case "gate":
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: v})
		case "age":
			d, err := time.ParseDuration(v)
			must(err)
			start := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(-d))
			p.CreationTimestamp, p.Status.StartTime = start, &start
		case "spec":
			must(yaml.UnmarshalStrict([]byte(rest(v, words[i+2:])), &p.Spec))
			return p
		default:
			panic("no pod has a " + k)
		}
	}
	return p
}

// Object makes an object of another kind from YAML; it panics where that makes no sense.
func Object(text string) client.Object {
	var head metav1.TypeMeta
	must(yaml.Unmarshal([]byte(text), &head))
	obj, err := client.Scheme().New(head.GroupVersionKind())
	must(err)
	must(yaml.UnmarshalStrict([]byte(text), obj))
	o := obj.(client.Object) // all kinds have metadata
	if o.GetUID() == "" {
		o.SetUID(types.UID(o.GetNamespace() + "/" + o.GetName()))
	}
	return o
}

// resourceOf guesses the resource from the kind, which is right for all built-in ones that plug-ins need.
func resourceOf(obj client.Object) schema.GroupVersionResource {
	gvk := client.KindOf(obj)
	resource := strings.ToLower(gvk.Kind)
	switch {
	case strings.HasSuffix(resource, "ss"):
		resource += "es"
	case strings.HasSuffix(resource, "y"):
		resource = strings.TrimSuffix(resource, "y") + "ies"
	default:
		resource += "s"
	}
	return gvk.GroupVersion().WithResource(resource)
}

func amountOf(v string) (corev1.ResourceName, resource.Quantity) {
	at := strings.LastIndexByte(v, ':')
	if at < 0 {
		panic(fmt.Sprintf("%q: want NAME:AMOUNT", v))
	}
	return corev1.ResourceName(v[:at]), resource.MustParse(v[at+1:])
}

func number(v string) int {
	n, err := strconv.Atoi(v)
	must(err)
	return n
}

func rest(first string, words []string) string {
	return strings.Join(append([]string{first}, words...), " ")
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
