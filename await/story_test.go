package await_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/storytest"
)

var deletion = metav1.Unix(1, 0)

// TestJudge plays the stories in testdata/*.txt. A story describes one object and
// what belongs to it, line by line, and asks for verdicts; the answer is under
// each question, after ">". Run with -update after a change, then read the diff.
//
//	pod NAME [phase=P] [node=N] [ready|unready[=MESSAGE]] [waiting=REASON[:MESSAGE]] [exit=CODE] [unschedulable=MESSAGE] [deleting]
//	rc NAME want=N [have=N] [ready=N] [stale] [fault=REASON:MESSAGE] [deleting]
//	job NAME [active=N] [ready=N] [succeeded=N] [failed=N] [condition=TYPE[:REASON:MESSAGE]]
//	service NAME [selector] [external] [balancer] · endpoint serving|unready
//	namespace NAME phase=P [deleting] · node NAME ready=STATUS[:REASON:MESSAGE]
//	yaml … (what is indented below it)
//	warning REASON:MESSAGE [pod=NAME]
//	judge DEGREE
//	look DEGREE (with what holds it up)
//
// The first object of a paragraph is judged; further pods belong to it. After an empty
// line the next object is the first.
func TestJudge(t *testing.T) {
	storytest.Play(t, "testdata", newStory)
}

func newStory(t *testing.T) func(string) []string {
	v := await.View{}
	var doc []string
	read := func(line string) {
		if len(doc) == 0 {
			return
		}
		u := &unstructured.Unstructured{}
		data, err := yaml.YAMLToJSON([]byte(strings.Join(doc, "\n")))
		if err == nil {
			err = u.UnmarshalJSON(data)
		}
		if err != nil {
			t.Fatalf("before %q: %v", line, err)
		}
		doc = nil
		if v.Object == nil {
			v.Object = u
		} else {
			v.Others = append(v.Others, u)
		}
	}
	return func(line string) []string {
		switch words := split(line); {
		case doc != nil && strings.HasPrefix(line, " "):
			doc = append(doc, line[2:])
		case len(words) == 0:
			read(line)
			v, doc = await.View{}, nil
		case words[0] == "yaml":
			read(line)
			doc = []string{}
		case words[0] == "judge":
			read(line)
			_, degree, _ := strings.Cut(line, " ")
			return []string{answer(t, degree, v)}
		case words[0] == "look":
			read(line)
			return look(t, words[1], v)
		default:
			if err := describe(&v, words); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
		return nil
	}
}

// look returns the parts that hold an object up, and the last events.
func look(t *testing.T, degree string, v await.View) []string {
	d, err := await.ParseDegree(degree)
	if err != nil {
		t.Fatal(err)
	}
	p, err := await.Look(d, v)
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{p.Object.String() + " " + p.Verdict.String()}
	var add func(indent string, parts []await.Part, more int)
	add = func(indent string, parts []await.Part, more int) {
		for _, part := range parts {
			lines = append(lines, indent+part.Object.String()+" "+part.Verdict.String())
			add(indent+"  ", part.Parts, part.More)
		}
		if more > 0 {
			lines = append(lines, fmt.Sprintf("%s%d more", indent, more))
		}
	}
	add("  ", p.Parts, p.More)
	for _, e := range p.Events {
		lines = append(lines, fmt.Sprintf("event %s %s: %s", e.InvolvedObject.Name, e.Reason, e.Message))
	}
	return lines
}

// answer judges the object as it is and unstructured: both must say the same.
func answer(t *testing.T, degree string, v await.View) string {
	d, err := await.ParseDegree(degree)
	if err != nil {
		return "error: " + err.Error()
	}
	verdict, err := await.Judge(d, v)
	if _, already := v.Object.(*unstructured.Unstructured); v.Object != nil && !already {
		m, convErr := runtime.DefaultUnstructuredConverter.ToUnstructured(v.Object)
		if convErr != nil {
			t.Fatal(convErr)
		}
		u := &unstructured.Unstructured{Object: m}
		u.SetGroupVersionKind(client.KindOf(v.Object))
		v.Object = u
		again, againErr := await.Judge(d, v)
		if again != verdict || (err == nil) != (againErr == nil) {
			t.Errorf("judge %s: typed %v (%v), unstructured %v (%v)", degree, verdict, err, again, againErr)
		}
	}
	var misuse *await.MisuseError
	switch {
	case errors.As(err, &misuse):
		return "misuse: " + err.Error()
	case err != nil:
		return "error: " + err.Error()
	}
	return verdict.String()
}

// split cuts a line into words; quotes keep blanks together.
func split(line string) []string {
	var words []string
	var word strings.Builder
	quoted, some := false, false
	for _, r := range line {
		switch {
		case r == '"':
			quoted, some = !quoted, true
		case r == ' ' && !quoted:
			if some {
				words = append(words, word.String())
			}
			word.Reset()
			some = false
		default:
			word.WriteRune(r)
			some = true
		}
	}
	if some {
		words = append(words, word.String())
	}
	return words
}

func describe(v *await.View, words []string) error {
	name := ""
	if len(words) > 1 {
		name = words[1]
	}
	meta := metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name), Generation: 2}
	var obj client.Object
	switch words[0] {
	case "pod":
		p := &corev1.Pod{ObjectMeta: meta}
		if err := pod(p, words[2:]); err != nil {
			return err
		}
		if v.Object != nil {
			v.Pods = append(v.Pods, p)
			return nil
		}
		obj = p
	case "rc":
		rc := &corev1.ReplicationController{ObjectMeta: meta}
		rc.Status.ObservedGeneration = 2
		for _, w := range words[2:] {
			key, value, _ := strings.Cut(w, "=")
			switch key {
			case "want":
				n := number(value)
				rc.Spec.Replicas = &n
				rc.Status.Replicas = n
			case "have":
				rc.Status.Replicas = number(value)
			case "ready":
				rc.Status.ReadyReplicas = number(value)
			case "stale":
				rc.Status.ObservedGeneration = 1
			case "fault":
				r, m, _ := strings.Cut(value, ":")
				rc.Status.Conditions = []corev1.ReplicationControllerCondition{{Type: "ReplicaFailure", Status: "True", Reason: r, Message: m}}
			case "deleting":
				rc.DeletionTimestamp = &deletion
			default:
				return fmt.Errorf("unknown word %q", w)
			}
		}
		obj = rc
	case "job":
		j := &batchv1.Job{ObjectMeta: meta}
		for _, w := range words[2:] {
			key, value, _ := strings.Cut(w, "=")
			n := number(value)
			switch key {
			case "active":
				j.Status.Active = n
			case "ready":
				j.Status.Ready = &n
			case "succeeded":
				j.Status.Succeeded = n
			case "failed":
				j.Status.Failed = n
			case "condition":
				c := strings.SplitN(value+"::", ":", 3)
				j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{
					Type: batchv1.JobConditionType(c[0]), Status: "True", Reason: c[1], Message: strings.TrimRight(c[2], ":"),
				})
			default:
				return fmt.Errorf("unknown word %q", w)
			}
		}
		obj = j
	case "service":
		s := &corev1.Service{ObjectMeta: meta}
		for _, w := range words[2:] {
			switch w {
			case "selector":
				s.Spec.Selector = map[string]string{"app": "web"}
			case "external":
				s.Spec.Type = corev1.ServiceTypeExternalName
			case "balancer":
				s.Spec.Type = corev1.ServiceTypeLoadBalancer
			default:
				return fmt.Errorf("unknown word %q", w)
			}
		}
		obj = s
	case "endpoint":
		yes := name == "serving"
		sliceMeta := metav1.ObjectMeta{
			Name: "s" + strconv.Itoa(len(v.Slices)), Namespace: "default", UID: types.UID("slice-" + strconv.Itoa(len(v.Slices))),
			Labels: map[string]string{discoveryv1.LabelServiceName: v.Object.GetName()},
		}
		if len(words) > 2 && words[2] == "portless" {
			sliceMeta.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
		}
		v.Slices = append(v.Slices, &discoveryv1.EndpointSlice{ObjectMeta: sliceMeta, Endpoints: []discoveryv1.Endpoint{
			{Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes}},
		}})
		return nil
	case "namespace":
		ns := &corev1.Namespace{ObjectMeta: meta}
		for _, w := range words[2:] {
			if phase, ok := strings.CutPrefix(w, "phase="); ok {
				ns.Status.Phase = corev1.NamespacePhase(phase)
			} else {
				ns.DeletionTimestamp = &deletion
			}
		}
		obj = ns
	case "node":
		node := &corev1.Node{ObjectMeta: meta}
		for _, w := range words[2:] {
			c := strings.SplitN(strings.TrimPrefix(w, "ready=")+"::", ":", 3)
			node.Status.Conditions = []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionStatus(c[0]), Reason: c[1], Message: strings.TrimRight(c[2], ":"),
			}}
		}
		obj = node
	case "warning":
		r, m, _ := strings.Cut(name, ":")
		of := ""
		if v.Object != nil {
			of = string(v.Object.GetUID())
		}
		for _, w := range words[2:] {
			of = "uid-" + strings.TrimPrefix(w, "pod=")
		}
		v.Warnings = append(v.Warnings, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "e" + strconv.Itoa(len(v.Warnings))}, Type: "Warning", Reason: r, Message: m,
			InvolvedObject: corev1.ObjectReference{UID: types.UID(of)},
		})
		return nil
	default:
		return fmt.Errorf("unknown word %q", words[0])
	}
	if v.Object == nil {
		v.Object = obj
	}
	return nil
}

func pod(p *corev1.Pod, words []string) error {
	status := corev1.ContainerStatus{Name: "main"}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "phase":
			p.Status.Phase = corev1.PodPhase(value)
		case "node":
			p.Spec.NodeName = value
		case "ready":
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: "True"})
		case "unready":
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: "False", Message: value})
		case "waiting":
			r, m, _ := strings.Cut(value, ":")
			status.State.Waiting = &corev1.ContainerStateWaiting{Reason: r, Message: m}
		case "exit":
			t := &corev1.ContainerStateTerminated{ExitCode: number(value), Reason: "Error"}
			if status.State.Waiting != nil {
				status.LastTerminationState.Terminated = t
			} else {
				status.State.Terminated = t
			}
		case "unschedulable":
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
				Type: corev1.PodScheduled, Status: "False", Reason: "Unschedulable", Message: value,
			})
		case "deleting":
			p.DeletionTimestamp = &deletion
		default:
			return fmt.Errorf("unknown word %q", w)
		}
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	return nil
}

func number(s string) int32 {
	n, _ := strconv.ParseInt(s, 10, 32)
	return int32(n)
}
