package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/clustertest"
)

// A walk is a sequence of changes of deployment/web, each followed to its end.
var walk = []struct {
	change string // of kubectl
	until  string // of sampan wait
}{
	{"create -f web.yaml", "--for=old-gone"},
	{"set image deployment/web main=demo:v2", "--for=old-gone"},
	{"annotate deployment/web kubernetes.io/change-cause=better", "--for=old-gone"},
	{"scale deployment/web --replicas=7", "--for=old-gone"},
	{"rollout undo deployment/web", "--for=old-gone"},
	{"rollout pause deployment/web", "--for=observed"},
	{"set image deployment/web main=demo:v3", "--for=observed"},
	{"rollout resume deployment/web", "--for=old-gone"},
	{"patch deployment web -p {\"spec\":{\"strategy\":{\"type\":\"Recreate\",\"rollingUpdate\":null},\"template\":{\"spec\":{\"terminationGracePeriodSeconds\":2}}}}", "--for=old-gone"},
	{"patch deployment web -p {\"spec\":{\"progressDeadlineSeconds\":1,\"strategy\":{\"type\":\"RollingUpdate\"},\"template\":{\"metadata\":{\"annotations\":{\"sampan.dev/simulated-pull-error\":\"none\"}}}}}", "--for=condition=Progressing=False"},
	{"rollout undo deployment/web", "--for=old-gone"},
	{"scale deployment/web --replicas=0", "--for=old-gone"},
}

const webYAML = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {mine: "yes"}}
spec:
  replicas: 4
  revisionHistoryLimit: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "demo:v1", imagePullPolicy: Always}]
`

// TestRolloutsLookTheSame takes a Deployment through the same changes on two clusters
// of ours, one with upstream's controllers in the place of ours, and compares what
// kubectl shows after each.
func TestRolloutsLookTheSame(t *testing.T) {
	sampan, kubectl := program(t, "SAMPAN"), program(t, "KUBECTL")
	ours := clustertest.New(t, clustertest.Options{Program: sampan, Nodes: 2})
	theirs := clustertest.New(t, clustertest.Options{Program: sampan, Nodes: 2, Args: []string{"--controllers=*,-deployment,-replicaset"}})
	manage(t, theirs.Kubeconfig)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(webYAML), 0o600); err != nil {
		t.Fatal(err)
	}
	clusters := []*clustertest.Cluster{ours, theirs}
	on := func(c *clustertest.Cluster, program string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s %s: %v\n%s%s", filepath.Base(program), strings.Join(args, " "), err, &out, &errs)
		}
		return out.String()
	}
	for _, step := range walk {
		for _, c := range clusters {
			on(c, kubectl, strings.Fields(step.change)...)
			on(c, sampan, "wait", "deployment/web", "--for=observed", step.until, "--timeout=120s", "--fail=never")
		}
		// Old ReplicaSets are removed some time after the status says that all is done.
		var diff string
		for range looks {
			var seen [2]string
			for i, c := range clusters {
				seen[i] = look(t, []byte(on(c, kubectl, "get", "deployments,replicasets", "-o", "json"))) +
					on(c, kubectl, "rollout", "history", "deployment/web")
			}
			if diff = cmp.Diff(seen[1], seen[0]); diff == "" {
				break
			}
		}
		if diff != "" {
			t.Errorf("after kubectl %s, upstream's controllers (-) and ours (+) differ:\n%s", step.change, diff)
		}
	}
}

// looks is how often two clusters are looked at until they are the same. A look takes a
// tenth of a second and more.
const looks = 30

// manage runs upstream's controllers of Deployments and ReplicaSets.
func manage(t *testing.T, kubeconfig string) {
	t.Helper()
	p := &Plane{t: t, dir: t.TempDir()}
	p.run("kube-controller-manager", filepath.Join(program(t, "UPSTREAM"), "kube-controller-manager"),
		"--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0", "--controllers=deployment-controller,replicaset-controller",
		"--kube-api-qps=200", "--kube-api-burst=400")
}

// look returns what counts of Deployments and ReplicaSets, in words.
func look(t *testing.T, list []byte) string {
	t.Helper()
	var l struct{ Items []json.RawMessage }
	if err := json.Unmarshal(list, &l); err != nil {
		t.Fatal(err)
	}
	var lines, sets []string
	for _, item := range l.Items {
		var kind metav1.TypeMeta
		var d appsv1.Deployment
		var s appsv1.ReplicaSet
		if err := json.Unmarshal(item, &kind); err != nil {
			t.Fatal(err)
		}
		if kind.Kind == "Deployment" {
			if err := json.Unmarshal(item, &d); err != nil {
				t.Fatal(err)
			}
			n := d.Status
			lines = append(lines, fmt.Sprintf("deployment %s: generation %d, observed %d, wants %d, has %d, updated %d, ready %d, available %d, unavailable %d, terminating %d, annotations %v",
				d.Name, d.Generation, n.ObservedGeneration, *d.Spec.Replicas, n.Replicas, n.UpdatedReplicas, n.ReadyReplicas, n.AvailableReplicas, n.UnavailableReplicas, of(n.TerminatingReplicas), sorted(d.Annotations)))
			var conditions []string
			for _, c := range n.Conditions {
				conditions = append(conditions, fmt.Sprintf("  %s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
			}
			slices.Sort(conditions)
			lines = append(lines, conditions...)
			continue
		}
		if err := json.Unmarshal(item, &s); err != nil {
			t.Fatal(err)
		}
		n := s.Status
		hash := s.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
		if hash == "" || s.Spec.Selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] != hash || s.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != hash || s.Name != "web-"+hash {
			t.Errorf("replicaset %s has the hash %q in its label, and others elsewhere", s.Name, hash)
		}
		sets = append(sets, fmt.Sprintf("replicaset %s: wants %d, has %d, labelled %d, ready %d, available %d, annotations %v, minReadySeconds %d, images %v, owner %v",
			s.Name, *s.Spec.Replicas, n.Replicas, n.FullyLabeledReplicas, n.ReadyReplicas, n.AvailableReplicas, sorted(s.Annotations), s.Spec.MinReadySeconds, images(s.Spec.Template.Spec), owner(s.OwnerReferences)))
	}
	for i := range sets {
		sets[i] = hashed.ReplaceAllString(sets[i], "web-HASH")
	}
	slices.Sort(sets)
	return hashed.ReplaceAllString(strings.Join(append(lines, sets...), "\n"), "web-HASH") + "\n"
}

// hashed is the name of a ReplicaSet of deployment/web.
var hashed = regexp.MustCompile(`web-[0-9a-z]{6,12}`)

func of(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

func sorted(m map[string]string) []string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, k+"="+m[k])
	}
	return all
}

func images(spec corev1.PodSpec) (all []string) {
	for _, c := range spec.Containers {
		all = append(all, c.Image)
	}
	return all
}

func owner(refs []metav1.OwnerReference) string {
	for _, r := range refs {
		if r.Controller != nil && *r.Controller {
			return fmt.Sprintf("%s %s %s, blocks %t", r.APIVersion, r.Kind, r.Name, r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion)
		}
	}
	return "none"
}
