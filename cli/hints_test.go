package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/cli"
)

// TestHintsRepeatWhichClusterIsMeant follows the hints of a command whose cluster was chosen with flags: all but secrets
// are repeated.
func TestHintsRepeatWhichClusterIsMeant(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}
	pod.Status.Phase = corev1.PodPending
	_, url := serve(t, pod, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	c := newTerminal(t, url)
	got := c.run("wait", "pod/a", "--for=ready", "--timeout=0", "-n", "shop", "--context=test", "--as=a b", "--as-group=g", "--as-group=h", "--token=secret")
	want := "  see: sampan get --kubeconfig=" + c.kubeconfig + ` --context=test --as="a b" --as-group=g --as-group=h -n shop pod/a -o yaml` + "\n"
	if got.code != 3 || !strings.HasSuffix(got.err, want) || strings.Contains(got.err, "secret") {
		t.Errorf("%+v\nwant %s", got, want)
	}
	got = c.run("exec", "a", "-n", "shop", "--", "date")
	want = "error: pod a does not have a host assigned; wait for it with 'sampan wait --kubeconfig=" + c.kubeconfig + " -n shop pod/a --for=running'\n"
	if got.err != want {
		t.Errorf("%s\nwant %s", got.err, want)
	}
}

func TestAnUnknownSubcommandIsNamedBeforeItsFlags(t *testing.T) {
	c := &terminal{t: t, kubeconfig: t.TempDir() + "/none"}
	for _, tt := range []struct{ args, want string }{
		{"create frobnicate --verb=get", "error: unknown command \"frobnicate\" for \"sampan create\"\nusage: see 'sampan create --help'\n"},
		{"frob --verb=get", "error: unknown command \"frob\" for \"sampan\"\nusage: see 'sampan --help'\n"},
		{"rollout frob --verb=get", "error: unknown command \"frob\" for \"sampan rollout\"\nusage: see 'sampan rollout --help'\n"},
		{"create service frob --tcp=80", "error: unknown command \"frob\" for \"sampan create service\"\nusage: see 'sampan create service --help'\n"},
		{"create --verb=get", "error: unknown flag: --verb\nusage: see 'sampan create --help'\n"},
		{"create configmap c --verb=get", "error: unknown flag: --verb\nusage: see 'sampan create configmap --help'\n"},
		{"gte pods", "error: unknown command \"gte\" for \"sampan\"\n\nDid you mean this?\n\tget\nusage: see 'sampan --help'\n"},
		{"image lst", "error: unknown command \"lst\" for \"sampan image\"\n\nDid you mean this?\n\tlist\nusage: see 'sampan image --help'\n"},
		{"create foo", "error: unknown command \"foo\" for \"sampan create\"\nusage: see 'sampan create --help'\n"},
		{"create jbo", "error: unknown command \"jbo\" for \"sampan create\"\n\nDid you mean this?\n\tjob\nusage: see 'sampan create --help'\n"},
		{"run web --verb=get", "error: unknown flag: --verb\nusage: see 'sampan run --help'\n"},
	} {
		c.want(1, "", tt.want, strings.Fields(tt.args)...)
	}
}

// TestGroupsRefuseUnknownCommands has a command that only holds others.
func TestGroupsRefuseUnknownCommands(t *testing.T) {
	for args, want := range map[string]int{"certs": 0, "certs list": 1, "certs check": 0} {
		group := &cobra.Command{Use: "certs", Args: cobra.NoArgs}
		group.AddCommand(&cobra.Command{Use: "check", RunE: func(*cobra.Command, []string) error { return nil }})
		var out, errs strings.Builder
		code := cli.Main(t.Context(), strings.Fields(args), cli.Options{Out: &out, Err: &errs, Extra: []*cobra.Command{group}})
		if code != want || want > 0 && !strings.Contains(errs.String(), `unknown command "list" for "sampan certs"`) {
			t.Errorf("%s: exit code %d, %s", args, code, errs.String())
		}
	}
}

// TestBrokenKubeconfigIsExplained has fields of a wrong type, whose errors name no types of Go.
func TestBrokenKubeconfigIsExplained(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	for text, want := range map[string]string{
		"clusters: {}\n":                         `field "clusters" must be a list, got a map`,
		"clusters:\n- name: a\n  cluster: [1]\n": `field "clusters.cluster" must be a map of fields, got a list`,
	} {
		if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := &terminal{t: t, kubeconfig: file}
		if got := c.run("get", "pods"); got.code != 1 || !strings.Contains(got.err, want) || strings.Contains(got.err, "Go struct") {
			t.Errorf("%q: %+v, want %s", text, got, want)
		}
	}
}

func TestKubectlsCommandsAreNamed(t *testing.T) {
	c := &terminal{t: t, kubeconfig: t.TempDir() + "/none"}
	for _, args := range []string{"edit deploy/x", "describe pod x", "label pod x a=b --overwrite", "set image deploy/x a=b", "patch cm x -p {}"} {
		verb, _, _ := strings.Cut(args, " ")
		c.want(1, "", "error: unknown command \""+verb+"\" for \"sampan\"\n\nIt is a command of kubectl, which works with the same kubeconfig: kubectl "+verb+
			"\nusage: see 'sampan --help'\n", strings.Fields(args)...)
	}
}

func TestRollingUpdateTakesAControllerAsTypeAndName(t *testing.T) {
	_, url := serve(t, webController("web", 3))
	c := newTerminal(t, url)
	for _, name := range []string{"web", "rc/web", "replicationcontroller/web", "replicationcontrollers/web", "ReplicationController/web", "rc.v1./web"} {
		c.want(0, "Rolling from:\nweb\nTo:\nweb2\n", "", "rolling-update", name, "rc/web2", "--image=v2", "--dry-run")
	}
	for name, want := range map[string]string{
		"deployment/web": "deployment/web: must be a replication controller: NAME, rc/NAME or replicationcontroller/NAME. Deployments,",
		"pod/web":        "pod/web: must be a replication controller",
		"rc/":            "rc/: must be rc/NAME",
		"rc/web/x":       "rc/web/x: must be rc/NAME",
		"/web":           "/web: must be a replication controller",
	} {
		if got := c.run("rolling-update", name, "--image=v2"); got.code != 1 || !strings.HasPrefix(got.err, "error: "+want) {
			t.Errorf("rolling-update %s: %+v, want %s", name, got, want)
		}
	}
}

func TestAFailedJobHasFinished(t *testing.T) {
	job := func(kind batchv1.JobConditionType, reason string) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: strings.ToLower(string(kind))}}
		j.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: "it is so"}}
		return j
	}
	_, url := serve(t, job(batchv1.JobFailed, "BackoffLimitExceeded"), job(batchv1.JobComplete, ""))
	c := newTerminal(t, url)
	c.want(0, "job.batch/complete has finished\n", "", "wait", "job/complete", "--for=finished", "-q")
	got := c.run("wait", "job/failed", "--for=finished", "-q")
	if got.code != 2 || !strings.HasPrefix(got.err, "error: job.batch/failed failed: BackoffLimitExceeded") {
		t.Errorf("%+v", got)
	}
	got = c.run("wait", "job/failed", "--for=ready", "-q")
	if got.code != 2 || !strings.HasPrefix(got.err, "error: job.batch/failed will not be ready: the job failed: BackoffLimitExceeded") {
		t.Errorf("%+v", got)
	}
}
