package cli_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
)

func getMap(t *testing.T, c client.Interface, namespace, name string) *corev1.ConfigMap {
	t.Helper()
	m, err := client.ConfigMaps.Get(t.Context(), c, namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestApplyMergesThreeWays(t *testing.T) {
	c, term := realServer(t)
	conf := file(t, "conf.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {a: \"1\", b: \"2\"}\n")
	term.want(0, "configmap/conf created\n", "", "apply", "--server-side=false", "-f", conf)
	term.want(0, "configmap/conf unchanged\n", "", "apply", "--server-side=false", "-f", conf)
	const annotation = `{"apiVersion":"v1","data":{"a":"1","b":"2"},"kind":"ConfigMap","metadata":{"annotations":{},"name":"conf","namespace":"default"}}` + "\n"
	if got := getMap(t, c, "default", "conf").Annotations[corev1.LastAppliedConfigAnnotation]; got != annotation {
		t.Errorf("the annotation is\n%s want kubectl's\n%s", got, annotation)
	}

	// What others write stays, what leaves the file goes, what differs is set back.
	m := getMap(t, c, "default", "conf").DeepCopy()
	m.Data["their"], m.Data["a"] = "x", "9"
	if _, err := client.ConfigMaps.Update(t.Context(), c, m, ""); err != nil {
		t.Fatal(err)
	}
	write(t, conf, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {a: \"1\", c: \"3\"}\n")
	for _, dry := range []string{"client", "server"} {
		note := " (dry run)"
		if dry == "server" {
			note = " (server dry run)"
		}
		term.want(0, "configmap/conf configured"+note+"\n", "", "apply", "--server-side=false", "-f", conf, "--dry-run="+dry)
		term.want(0, `{"a":"1","c":"3","their":"x"}`, "", "apply", "--server-side=false", "-f", conf, "--dry-run="+dry, "-o", "jsonpath={.data}")
	}
	if got := fmt.Sprint(getMap(t, c, "default", "conf").Data); got != "map[a:9 b:2 their:x]" {
		t.Errorf("a dry run changed it: %s", got)
	}
	term.want(0, "configmap/conf configured\n", "", "apply", "--server-side=false", "-f", conf)
	if got := fmt.Sprint(getMap(t, c, "default", "conf").Data); got != "map[a:1 c:3 their:x]" {
		t.Errorf("after apply: %s", got)
	}

	// An object that was made otherwise is taken over with a warning.
	made := file(t, "made.yaml", configMap("made"))
	term.want(0, "configmap/made created\n", "", "create", "-f", made)
	term.want(0, "configmap/made configured\n", "Warning: resource configmaps/made is missing the kubectl.kubernetes.io/last-applied-configuration annotation which is required by sampan apply. "+
		"sampan apply should only be used on resources created declaratively by either sampan create --save-config or sampan apply. The missing annotation will be patched automatically.\n", "apply", "--server-side=false", "-f", made)
	term.want(0, "configmap/saved created\n", "", "create", "--save-config", "-f", file(t, "saved.yaml", configMap("saved")))
	term.want(0, "configmap/saved unchanged\n", "", "apply", "--server-side=false", "-f", file(t, "saved.yaml", configMap("saved")))
	if got := term.run("apply", "--server-side=false", "-f", made, "-f", conf, "-o", "json"); got.code != 0 || !strings.Contains(got.out, `"kind": "List"`) {
		t.Errorf("-o json: %+v", got)
	}
	term.want(0, "configmap/made\nconfigmap/conf\n", "", "apply", "--server-side=false", "-f", made, "-f", conf, "-o", "name")
}

func TestApplyOfAnObjectThatIsWrittenToMeanwhile(t *testing.T) {
	w, url := serve(t)
	term := newTerminal(t, url)
	conf := file(t, "conf.yaml", configMap("conf"))
	term.want(0, "configmap/conf created\n", "", "apply", "--server-side=false", "-f", conf)
	write(t, conf, strings.Replace(configMap("conf"), `"1"`, `"2"`, 1))
	lost := 0
	w.conflicts = func() bool { lost++; return lost <= 3 }
	term.want(0, "configmap/conf configured\n", "", "apply", "--server-side=false", "-f", conf)
	if lost != 4 {
		t.Errorf("%d patches were tried, want 4", lost)
	}
}

func TestApplyPutsObjectsInOrder(t *testing.T) {
	_, term := realServer(t)
	in := `
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: new}
spec: {serviceAccountName: sa, containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Service
metadata: {name: s, namespace: new}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Secret
metadata: {name: x, namespace: new}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: sa, namespace: new}
---
apiVersion: v1
kind: Namespace
metadata: {name: new}
`
	term.want(0, "namespace/new serverside-applied\nserviceaccount/sa serverside-applied\nsecret/x serverside-applied\nservice/s serverside-applied\npod/p serverside-applied\n", "", "apply", "-f", file(t, "all.yaml", in))
}

func TestApplyReportsEveryError(t *testing.T) {
	c, term := realServer(t)
	in := configMap("good") + "---\nkind: ConfigMap\n---\n" + strings.Replace(configMap("typo"), "\ndata:", "\ndat:", 1) + `---
apiVersion: v1
kind: Service
metadata: {name: s}
spec: {ports: [{port: 80000}]}
---
apiVersion: sea/v1
kind: Boat
metadata: {name: b}
---
apiVersion: v1
kind: ConfigMap
metadata: {generateName: x-}
`
	path := file(t, "in.yaml", in)
	got := term.run("apply", "-f", path)
	want := []string{
		"error: " + path + ", document 2 (line 5): apiVersion is not set: an object needs apiVersion, kind and metadata",
		"error: " + path + `, document 5 (line 17), line 19 column 1: no matches for kind "Boat" in version "sea/v1": the server does not serve it; check both`,
		"error: " + path + `, document 3 (line 7), line 11 column 1: unknown field "dat" (did you mean "data"?)`,
		"error: " + path + `, document 6 (line 21), line 24 column 12: cannot use generate name with apply: x-`,
		"Error from server (Invalid): " + path + `, document 4 (line 12), line 16 column 17: Service "s" is invalid: [spec.ports[0].port: Invalid value: 80000: must be between 1 and 65535, inclusive, spec.ports[0].targetPort: Invalid value: 80000: must be between 1 and 65535, inclusive]`,
	}
	if got.code != 1 || got.out != "configmap/good serverside-applied\n" || got.err != strings.Join(want, "\n")+"\n" {
		t.Errorf("exit code %d\n%s%s\nwant\n%s", got.code, got.out, got.err, strings.Join(want, "\n"))
	}
	if m := getMap(t, c, "default", "good"); m.Data["a"] != "1" {
		t.Errorf("what is good was not applied: %v", m)
	}
}

func TestApplyMisuse(t *testing.T) {
	_, term := realServer(t)
	conf := file(t, "conf.yaml", configMap("conf"))
	two := file(t, "two.yaml", strings.Replace(configMap("conf"), "NAME", "x, namespace: two", 1))
	write(t, two, strings.Replace(configMap("conf"), "name: conf", "name: conf, namespace: two", 1))
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "must specify one of -f and -k"},
		{[]string{"-f", conf, "--server-side", "--dry-run=client"}, "--dry-run=client doesn't work with --server-side (did you mean --dry-run=server instead?)"},
		{[]string{"-f", conf, "--server-side=false", "--force-conflicts"}, "--force-conflicts only works with --server-side"},
		{[]string{"-f", conf, "--server-side=perhaps"}, "must be true or false"},
		{[]string{"-f", conf, "--prune"}, "--prune requires --applyset=NAME"},
		{[]string{"-f", conf, "--applyset=x"}, "--applyset requires --prune"},
		{[]string{"-f", conf, "--prune", "--applyset=x", "-l", "a=b"}, "--selector is incompatible with --applyset"},
		{[]string{"-f", conf, "--prune", "--applyset=x", "--force"}, "--force cannot be used with --prune"},
		{[]string{"-f", conf, "--force", "--server-side"}, "--force cannot be used with --server-side"},
		{[]string{"-f", conf, "--force", "--dry-run=server"}, "--dry-run=server cannot be used with --force"},
		{[]string{"-f", conf, "-l", "a b"}, "--selector=a b: "},
		{[]string{"-f", conf, "-l", "a=b"}, "no objects passed to apply"},
		{[]string{"-f", conf, "--prune", "--applyset=a/b/c"}, `invalid parent reference "a/b/c": want NAME or TYPE[.GROUP]/NAME`},
		{[]string{"-f", conf, "--prune", "--applyset=boats/x"}, `the server doesn't have a resource type "boats"`},
		{[]string{"-f", conf, "-n", "default", "--prune", "--applyset=svc/x"}, `resource "services" is not permitted as an ApplySet parent`},
		{[]string{"-f", two, "-n", "default"}, `the namespace from the provided object "two" does not match the namespace "default". You must pass '--namespace=two' to perform this operation.`},
		{[]string{"-f", conf, "-k", "."}, "only one of -f or -k can be specified"},
		{[]string{"-k", ".", "-R"}, "the -k flag can't be used with -f or -R"},
		{[]string{"-f", file(t, "none.json", `{"apiVersion":"v1","kind":"List","items":[]}`)}, "no objects passed to apply"},
	} {
		got := term.run(append([]string{"apply"}, tt.args...)...)
		if got.code != 1 || got.out != "" || !strings.Contains(got.err, tt.want) {
			t.Errorf("apply %s: %+v, want exit code 1 and %q", strings.Join(tt.args, " "), got, tt.want)
		}
	}
}

func TestApplyOfSomeObjects(t *testing.T) {
	_, term := realServer(t)
	labelled := func(name, labels string) string {
		return strings.Replace(configMap(name), "name: "+name, "name: "+name+", labels: {"+labels+"}", 1)
	}
	in := file(t, "in.yaml", labelled("a", "tier: front")+"---\n"+labelled("b", "tier: back")+"---\n"+configMap("c"))
	term.want(0, "configmap/a serverside-applied\n", "", "apply", "-f", in, "-l", "tier=front")
	term.want(0, "configmap/b serverside-applied\nconfigmap/c serverside-applied\n", "", "apply", "-f", in, "--selector=tier!=front")
}

func TestApplyMakesAnewWhatCannotBeChanged(t *testing.T) {
	t.Run("by merges", func(t *testing.T) { makesAnew(t, "created", "configured", "--server-side=false") })
	t.Run("by the server", func(t *testing.T) { makesAnew(t, "serverside-applied", "serverside-applied") })
}

func makesAnew(t *testing.T, created, configured string, way ...string) {
	c, term := realServer(t)
	apply := func(args ...string) []string { return append(append([]string{"apply"}, way...), args...) }
	fixed := configMap("fixed") + "immutable: true\n"
	in := file(t, "in.yaml", fixed)
	term.want(0, "configmap/fixed "+created+"\n", "", apply("-f", in)...)
	before := getMap(t, c, "default", "fixed")

	// Without --force it stays, and so it does if what is wanted cannot be made either.
	write(t, in, strings.Replace(fixed, `a: "1"`, `a: "2"`, 1))
	if got := term.run(apply("-f", in)...); got.code != 1 || !strings.Contains(got.err, "Error from server (Invalid): "+in) || !strings.Contains(got.err, "immutable") {
		t.Errorf("without --force: %+v", got)
	}
	write(t, in, strings.Replace(fixed, `a: "1"`, `"a b": "2"`, 1))
	got := term.run(apply("-f", in, "--force")...)
	if got.code != 1 || !strings.Contains(got.err, `"a b"`) || !strings.Contains(got.err, "the old object was restored, because the new one could not be created: ConfigMap") {
		t.Errorf("what cannot be made: %+v", got)
	}
	if m := getMap(t, c, "default", "fixed"); m.Data["a"] != "1" || m.Immutable == nil {
		t.Errorf("it was not made again: %v", m)
	}

	write(t, in, strings.Replace(fixed, `a: "1"`, `a: "2"`, 1))
	term.want(0, "configmap/fixed configured\n", "", apply("-f", in, "--force")...)
	if m := getMap(t, c, "default", "fixed"); m.Data["a"] != "2" || m.UID == before.UID {
		t.Errorf("it is %v", m)
	}
	// What can be changed is changed, and what is not there yet is made or not.
	write(t, in, configMap("soft"))
	term.want(0, "configmap/soft "+created+"\n", "", apply("-f", in, "--force")...)
	uid := getMap(t, c, "default", "soft").UID
	write(t, in, strings.Replace(configMap("soft"), `a: "1"`, `a: "2"`, 1))
	term.want(0, "configmap/soft "+configured+"\n", "", apply("-f", in, "--force")...)
	if m := getMap(t, c, "default", "soft"); m.Data["a"] != "2" || m.UID != uid {
		t.Errorf("it is %v, want the same one changed", m)
	}
	write(t, in, strings.Replace(configMap("none"), `a: "1"`, `"a b": "2"`, 1))
	if got := term.run(apply("-f", in, "--force")...); got.code != 1 || strings.Contains(got.err, "made again,") {
		t.Errorf("what was never there: %+v", got)
	}
}

func TestPruneDeletesWhatLeftTheSet(t *testing.T) {
	c, term := realServer(t)
	dir := t.TempDir()
	a := write(t, dir+"/a.yaml", configMap("a"))
	write(t, dir+"/b.yaml", configMap("b"))
	write(t, dir+"/s.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: two}\nspec: {ports: [{port: 80}]}\n")
	stranger := file(t, "stranger.yaml", configMap("stranger"))
	term.want(0, "configmap/stranger serverside-applied\n", "", "apply", "-f", stranger)
	apply := func(out, errs string, args ...string) {
		t.Helper()
		code := 0
		if errs != "" {
			code = 1
		}
		term.want(code, out, errs, append([]string{"apply", "--prune", "--applyset=app"}, args...)...)
	}
	apply("configmap/a serverside-applied\nconfigmap/b serverside-applied\nservice/s serverside-applied\n", "", "-f", dir)
	parent, err := client.Secrets.Get(t.Context(), c, "default", "app")
	if err != nil {
		t.Fatal(err)
	}
	// echo -n app.default.Secret. | sha256sum | xxd -r -p | basenc --base64url
	const id = "applyset-4SeA_RrtFubF-r96PJcBQ0Uok0PdHwLBiX7mPYjsNGc-v1"
	for got, want := range map[string]string{
		parent.Labels["applyset.kubernetes.io/id"]:                              id,
		parent.Annotations["applyset.kubernetes.io/tooling"]:                    "sampan/v0",
		parent.Annotations["applyset.kubernetes.io/contains-group-kinds"]:       "ConfigMap,Service",
		parent.Annotations["applyset.kubernetes.io/additional-namespaces"]:      "two",
		getMap(t, c, "default", "a").Labels["applyset.kubernetes.io/part-of"]:   id,
		getMap(t, c, "default", "stranger").Labels["applyset.kubernetes.io/id"]: "",
	} {
		if got != want {
			t.Errorf("the set says %q, want %q", got, want)
		}
	}
	apply("configmap/a configured (dry run)\nservice/s pruned (dry run)\nconfigmap/b pruned (dry run)\n", "", "-f", a, "--dry-run=client")
	apply("configmap/a serverside-applied (server dry run)\nservice/s pruned (server dry run)\nconfigmap/b pruned (server dry run)\n", "", "-f", a, "--dry-run=server")

	// Nothing is pruned when something could not be applied.
	bad := file(t, "bad.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: A}\n")
	got := term.run("apply", "-n", "default", "--prune", "--applyset=app", "-f", a, "-f", bad)
	if got.code != 1 || got.out != "configmap/a serverside-applied\n" || !strings.Contains(got.err, "error: nothing was pruned, because not everything was applied\n") {
		t.Errorf("with a bad object: %+v", got)
	}
	_ = getMap(t, c, "default", "b")

	apply("configmap/a serverside-applied\nservice/s pruned\nconfigmap/b pruned\n", "", "-f", a)
	apply("configmap/a serverside-applied\n", "", "-f", a)
	if _, err := client.ConfigMaps.Get(t.Context(), c, "default", "b"); err == nil {
		t.Error("b is still there")
	}
	if parent, err = client.Secrets.Get(t.Context(), c, "default", "app"); err != nil || parent.Annotations["applyset.kubernetes.io/contains-group-kinds"] != "ConfigMap" {
		t.Errorf("the parent has not forgotten what is gone: %v, %v", parent.Annotations, err)
	}
	_ = getMap(t, c, "default", "stranger")

	// Parents without the annotations, or of another tool.
	for name, annotations := range map[string]map[string]string{"none": nil, "theirs": {"applyset.kubernetes.io/tooling": "kubectl/v1.37"}} {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: annotations}}
		if _, err := client.ConfigMaps.Create(t.Context(), c, m); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"cm/none":   `already exists and is missing required annotation "applyset.kubernetes.io/tooling"`,
		"cm/theirs": `already exists and is managed by tooling "kubectl" instead of "sampan"`,
		"cm/a":      "",
	} {
		got := term.run("apply", "-n", "default", "--prune", "--applyset="+name, "-f", a)
		if got.code != 1 || got.out != "" || !strings.Contains(got.err, want) {
			t.Errorf("--applyset=%s: %+v, want %q", name, got, want)
		}
	}
}
