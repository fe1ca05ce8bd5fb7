package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func webController(name string, replicas int32) *corev1.ReplicationController {
	return &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ReplicationControllerSpec{
			Replicas: &replicas, Selector: map[string]string{"app": "web"},
			Template: &corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "v1"}}},
			},
		},
	}
}

func TestRollingUpdateTellsWhatIsWrong(t *testing.T) {
	w, url := serve(t, webController("web", 3))
	c := newTerminal(t, url)
	c.want(4, "", "Error from server (NotFound): replicationcontrollers \"none\" not found\n", "rolling-update", "none", "--image=v2")
	dir := t.TempDir()
	spec := func(name, text string) string { return "-f=" + write(t, filepath.Join(dir, name), text) }
	service := spec("service.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n")
	typo := spec("typo.yaml", strings.ReplaceAll(webYAML[:strings.Index(webYAML, "---")], "replicas:", "replica:"))
	for _, tt := range []struct{ args, want string }{
		{"", "one of --image, -f, --rollback, --promote and --replace-pods"},
		{"--image=v2 --rollback", "one of --image"},
		{"--image=v2 --canaries=-1", "--canaries must not be negative"},
		{"--image=v2 --canaries=some", "must be a whole number"},
		{"--image=v2 --min-ready-seconds=-1", "--min-ready-seconds must not be negative"},
		{"--image=v2 --max-surge=0", "one of surge and unavailable must be more than 0"},
		{"--image=v2 --max-surge=half", "surge \"half\": want a number or a percentage"},
		{"--image=v2 --cleanup=burn", "want delete, rename or preserve"},
		{"--image=v2 --cleanup=preserve", "pass a new name"},
		{"--image=v2 --timeout=-1s", "--timeout=-1s: want 0 or more"},
		{"--image=v2 --timeout=10s --min-ready-seconds=20", "the timeout (10s) must be longer"},
		{"--image=v2 --validate=maybe", "must be strict, warn or ignore"},
		{"--image=v2 --deployment-label-key=", "--deployment-label-key must not be empty"},
		{"--image=v2 --container=side", "has no container \"side\": it has main"},
		{"--image=v2 --image-pull-policy=Often", "want Always, IfNotPresent or Never"},
		{"--replace-pods --canaries=1", "canaries need an image"},
		{"--rollback", "there is nothing to roll back"},
		{"--promote", "there is nothing to promote"},
		{service, "one ReplicationController and no other object"},
		{typo, "unknown field \"spec.replica\""},
		{typo + " --validate=ignore", "differs from \"web\""},
		{"-f=a -f=b", "does not exist"},
	} {
		got := c.run(append([]string{"rolling-update", "web"}, strings.Fields(tt.args)...)...)
		if got.code != 1 || got.out != "" || !strings.HasPrefix(got.err, "error: ") || !strings.Contains(got.err, tt.want) {
			t.Errorf("rolling-update web %s: %+v, want exit code 1 and %q", tt.args, got, tt.want)
		}
	}
	if writes := w.Writes(); len(writes) > 0 {
		t.Errorf("it wrote %v", writes)
	}
}

func TestRollingUpdateDryRunWritesNothing(t *testing.T) {
	going := webController("going", 2)
	going.UID = "uid-going"
	going.Annotations = map[string]string{"kubectl.kubernetes.io/next-controller-id": "next", "kubectl.kubernetes.io/original-replicas": "3"}
	next := webController("next", 1)
	next.Annotations = map[string]string{"kubectl.kubernetes.io/update-source-id": "going:uid-going", "kubectl.kubernetes.io/desired-replicas": "3"}
	w, url := serve(t, webController("web", 3), going, next)
	c := newTerminal(t, url)
	for _, dry := range []string{"--dry-run", "--dry-run=client", "--dry-run=server"} {
		c.want(0, "Rolling from:\nweb\nTo:\nweb2\n", "", "rolling-update", "web", "web2", "--image=v2", dry)
	}
	c.want(0, "v2", "", "rolling-update", "web", "--image=v2", "--dry-run", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	c.want(0, "Replacing 0 pods of:\nweb\n", "", "rolling-update", "web", "--replace-pods", "--dry-run")
	c.want(0, "Rolling back to:\ngoing\n", "", "rolling-update", "going", "--rollback", "--dry-run")
	c.want(0, "Rolling from:\ngoing\nTo:\nnext\n", "", "rolling-update", "going", "--promote", "--dry-run")
	for _, r := range w.Writes() {
		if r.Verb != "create" { // the server was asked to check one, and did not keep it
			t.Errorf("it wrote %v", r)
		}
	}
	if got := c.run("get", "rc", "-o", "name"); strings.Contains(got.out, "web2") || strings.Count(got.out, "\n") != 3 {
		t.Errorf("after all that, there are\n%s", got.out)
	}
}
