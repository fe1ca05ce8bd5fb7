package cli_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/cli"
	"github.com/sampan-io/sampan/client"
)

// hostile is text of an attacker: it clears a screen, sets its title, overwrites its line, and begins sequences in the one
// character that does so in some encodings.
const hostile = "\x1b[2J\x1b]0;gotcha\a\rfake\b\u009b31m\x7f"

// hostileObjects have hostile text wherever the API takes any.
func hostileObjects() []client.Object {
	node := machine("n1", "4", func(n *corev1.Node) {
		n.Labels["l"], n.Annotations = hostile, map[string]string{"a": hostile}
		n.Spec.Taints = []corev1.Taint{{Key: "k", Value: hostile, Effect: corev1.TaintEffectNoSchedule}}
		n.Status.NodeInfo.KernelVersion, n.Status.NodeInfo.OSImage = hostile, hostile
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: hostile, Message: hostile}}
	})
	web := pod("web", func(p *corev1.Pod) {
		p.Labels["l"], p.Annotations = hostile, map[string]string{"a": hostile}
		p.Spec.Containers[0].Image = hostile
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodPending, hostile, hostile
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: hostile, Message: hostile}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: hostile, Message: hostile}}}}
	})
	lost := pod("lost", func(p *corev1.Pod) {
		p.Spec.NodeName, p.Spec.NodeSelector, p.Spec.SchedulerName = "", map[string]string{"disk": hostile}, "default-scheduler"
	})
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web.1"}, Type: hostile, Reason: hostile, Message: hostile, Count: 2,
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "default", Name: "web"}, Source: corev1.EventSource{Component: hostile},
	}
	deploy := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "d"}}
	deploy.Annotations = map[string]string{"deployment.kubernetes.io/revision": "1", "kubernetes.io/change-cause": hostile}
	deploy.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	deploy.Spec.Replicas, deploy.Spec.Template.Labels = new(int32(1)), map[string]string{"app": "web"}
	deploy.Status.Conditions = []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: hostile, Message: hostile},
		{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded", Message: hostile},
	}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", Annotations: deploy.Annotations, Labels: map[string]string{"app": "web"}}}
	set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "d", Controller: new(true)}}
	set.Spec.Selector, set.Spec.Template = deploy.Spec.Selector, deploy.Spec.Template
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	job.Spec.Completions = new(int32(1))
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: hostile, Message: hostile}}
	rc := webController("web", 3)
	rc.Annotations = map[string]string{"a": hostile}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Data: map[string]string{"k": hostile}}
	return append([]client.Object{node, web, lost, event, deploy, set, job, rc, config}, traced()[1:3]...)
}

// serverCommands are command lines that make requests, at least one for each command that makes any.
func serverCommands(t *testing.T) [][]string {
	manifest := file(t, "map.yaml", configMap("web"))
	lines := [][]string{
		{"apply", "-f", manifest},
		{"replace", "-f", manifest},
		{"delete", "-f", manifest},
		{"create", "-f", manifest},
		{"create", "token", "x"},
		{"exec", "web", "--", "date"},
		{"cp", "web:/x", t.TempDir() + "/x"},
		{"debug", "web", "--image=x"},
		{"run", "x", "--image=x"},
		{"run", "job", "x", "--image=x", "--timeout=2s"},
		{"logs", "web"},
		{"attach", "web"},
		{"port-forward", "web", "0:80"},
		{"rolling-update", "web", "--image=v2", "--dry-run"},
		{"rollout", "history", "deploy/web"},
		{"rollout", "history", "deploy/web", "--revision=1"},
		{"rollout", "status", "deploy/web", "--timeout=2s"},
		{"scheduler", "explain", "pod/lost"},
		{"scheduler", "explain", "pod/lost", "-o", "wide"},
		{"service", "trace", "web"},
		{"token", "list"},
		{"token", "create"},
		{"token", "delete", "abcdef"},
		{"version"},
		{"wait", "pod/web", "--for=ready", "--timeout=1s"},
		{"wait", "deploy/web", "job/web", "node/n1", "--for=ready", "--timeout=1s"},
		{"wait", "pod/web", "--for=ready", "--timeout=1s", "-o", "json"},
		{"scale", "rc/web", "--replicas=1"},
		{"drain", "n1", "--force", "--ignore-daemonsets", "--timeout=2s"},
		{"history"},
		{"history", "configmap/web"},
		{"history", "purge", "configmap/web"},
		{"diff", "configmap/web", "--from=1"},
		{"top", "pods"},
		{"top", "nodes"},
	}
	for _, node := range []string{"cordon", "uncordon", "simulate cut", "simulate restore"} {
		lines = append(lines, append(strings.Fields(node), "n1"))
	}
	for _, verb := range []string{"abort", "pause", "promote", "restart", "resume", "undo"} {
		lines = append(lines, []string{"rollout", verb, "deploy/web"})
	}
	for _, form := range []string{
		"clusterrolebinding b --clusterrole=c", "configmap c", "cronjob c --image=x --schedule=@daily", "deployment d --image=x", "ingress i --default-backend=s:80",
		"job j --image=x", "namespace n", "poddisruptionbudget p --selector=a=b --min-available=1", "priorityclass p --value=1", "quota q", "role r --verb=get --resource=pods",
		"clusterrole r --verb=get --resource=pods", "rolebinding b --role=r", "secret docker-registry s --docker-username=u --docker-password=p", "secret generic s", "service clusterip s --tcp=80", "service externalname s --external-name=x.test",
		"service loadbalancer s --tcp=80", "service nodeport s --tcp=80", "serviceaccount s",
	} {
		lines = append(lines, append([]string{"create"}, strings.Fields(form)...))
	}
	for _, kind := range []string{"pods", "events", "nodes", "deploy", "rs", "job", "rc", "cm", "svc"} {
		for _, format := range []string{"", "wide", "name", "yaml", "json", "custom-columns=A:.metadata.annotations,B:.metadata.labels,C:.message,D:.status"} {
			lines = append(lines, []string{"get", kind, "-o", format})
		}
	}
	return append(lines, []string{"get", "pods", "--show-labels", "-L", "l"}, []string{"get", "cm/web", "events", "--no-headers"})
}

// localCommands make no requests, or log what servers say in the quotation marks of package log/slog.
var localCommands = []string{
	"completion bash", "completion fish", "completion powershell", "completion zsh", "controllers", "dns", "help", "options", "proxy",
	"create secret tls", // fails before its request without a certificate
	"image import", "image inspect", "image list", "image prune", "image pull", "image remove", "image save",
}

func checkPrintable(t *testing.T, got result, args []string) {
	t.Helper()
	if i := strings.IndexFunc(got.out+got.err, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }); i >= 0 {
		t.Errorf("sampan %s prints control characters:\n%q", strings.Join(args, " "), got.out+got.err)
	}
}

// TestCommandsEscapeText has every command of the tree print text of an attacker: from objects, and from the errors and
// warnings of a server.
func TestCommandsEscapeText(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Warning", "299 - \"C1 \u009b31m\"")
		fail(rw, &statusError{metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "no: " + hostile}})
	}))
	defer refusing.Close()
	walked := map[string]bool{}
	for _, args := range serverCommands(t) {
		_, url := serve(t, hostileObjects()...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // none of them takes so long
		checkPrintable(t, newTerminal(t, url).runIn(ctx, args...), args)
		if ctx.Err() != nil {
			t.Fatalf("sampan %s does not end", strings.Join(args, " "))
		}
		cancel()
		got := newTerminal(t, refusing.URL).run(args...)
		checkPrintable(t, got, args)
		if !strings.Contains(got.err+got.out, "^[[2J") && !strings.Contains(got.err, "--dry-run") && args[0] != "version" {
			t.Errorf("sampan %s does not print the error of the server: %+v", strings.Join(args, " "), got)
		}
		for n := range args {
			walked[strings.Join(args[:n+1], " ")] = true
		}
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		name := strings.TrimPrefix(c.CommandPath(), "sampan ")
		if c.Runnable() && !c.HasSubCommands() && !walked[name] && !slices.Contains(localCommands, name) {
			t.Errorf("nothing is known of %q: add a command line to serverCommands", name)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(cli.New(cli.Options{}))
}

type statusError struct{ status metav1.Status }

func (e *statusError) Status() metav1.Status { return e.status }

func (e *statusError) Error() string { return e.status.Message }

// TestColumnsEscapeAsKubectl compares with what kubectl prints: its tables end a cell at the first line, and its columns
// keep aligned.
func TestColumnsEscapeAsKubectl(t *testing.T) {
	_, url := serve(t, pod("a", func(p *corev1.Pod) {
		isOld(p)
		p.Status.Reason = "\x1b[31mred"
		p.Annotations = map[string]string{"a": "\x1b[1m\rx"}
	}),
		pod("b", func(p *corev1.Pod) {
			isOld(p)
			p.Status.Reason = "two\nlines"
			p.Annotations = map[string]string{"a": "b"}
		}))
	c := newTerminal(t, url)
	c.want(0, "NAME   READY   STATUS      RESTARTS   AGE\na      0/1     ^[[31mred   0          4d4h\nb      0/1     two...      0          4d4h\n", "", "get", "pods")
	c.want(0, "A          NAME\n^[[1m\\rx   a\nb          b\n", "", "get", "pods", "-o", "custom-columns=A:.metadata.annotations.a,NAME:.metadata.name")
	c.want(0, "\x1b[1m\rx", "", "get", "pod/a", "-o", "jsonpath={.metadata.annotations.a}") // a program reads it
}
