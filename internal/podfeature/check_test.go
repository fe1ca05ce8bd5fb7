package podfeature

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// A class is a line of testdata/fields.txt.
type class struct{ name, sample string }

func readClasses(t *testing.T) map[string]class {
	t.Helper()
	b, err := os.ReadFile("testdata/fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]class{}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		verdict, sample, _ := strings.Cut(strings.TrimSpace(rest), " ")
		if _, twice := all[name]; twice {
			t.Errorf("%s has two lines", name)
		}
		all[name] = class{verdict, strings.TrimSpace(sample)}
	}
	return all
}

// A new field of the API type has to be classified before it is served.
func TestEveryFieldIsClassified(t *testing.T) {
	classes := readClasses(t)
	seen := map[reflect.Type]bool{}
	there := map[string]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, typ.Kind()) {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ.PkgPath() != reflect.TypeFor[corev1.PodSpec]().PkgPath() || seen[typ] {
			return
		}
		seen[typ] = true
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" { // its fields are those of typ
				walk(f.Type)
				continue
			}
			name = typ.Name() + "." + name
			there[name] = true
			switch c, ok := classes[name]; {
			case !ok:
				t.Errorf("%s is not in testdata/fields.txt: say what becomes of it", name)
			case c.name == "works":
				walk(f.Type)
			case !slices.Contains([]string{"claim", "moot", "dropped", "refused", string(Ignored), string(Rejected)}, c.name):
				t.Errorf("%s is %q, which is none of the classes", name, c.name)
			}
		}
	}
	walk(reflect.TypeFor[corev1.PodSpec]())
	for name := range classes {
		if !there[name] {
			t.Errorf("testdata/fields.txt names %s, which is not a field, or part of one that does not work", name)
		}
	}
}

func read(t *testing.T, sample string) *corev1.PodSpec {
	t.Helper()
	spec := &corev1.PodSpec{}
	if err := yaml.UnmarshalStrict([]byte(sample), spec); err != nil {
		t.Fatalf("%s: %v", sample, err)
	}
	return spec
}

// What a line of fields.txt says of a field is what the tables do.
func TestCheckFindsClassifiedFields(t *testing.T) {
	hit := map[string]bool{}
	for name, c := range readClasses(t) {
		if c.name != string(Ignored) && c.name != string(Rejected) {
			continue
		}
		found := Check(read(t, c.sample), field.NewPath("spec"))
		if len(found) != 1 || string(found[0].Effect) != c.name {
			t.Errorf("%s: %s: found %+v, want one field that is %s", name, c.sample, found, c.name)
			continue
		}
		hit[found[0].Because+found[0].Field] = true
	}
	rules := len(podRules) + len(containerRules) + len(volumeRules)
	if want := rules; len(hit) != want {
		t.Errorf("testdata/fields.txt has samples for %d rules of %d", len(hit), want)
	}
}

func TestCheckNamesFieldAndValue(t *testing.T) {
	for _, one := range []struct {
		spec string
		want []string
	}{
		{`{containers: [{name: a, image: "a:1", imagePullPolicy: IfNotPresent, readinessProbe: {httpGet: {port: 80}}}]}`, nil},
		{`{containers: [{image: a, imagePullPolicy: Always}, {image: "host:5000/a", imagePullPolicy: Always}, {image: "a:latest", imagePullPolicy: Always}]}`, nil},
		{`{volumes: [{emptyDir: {medium: Memory, sizeLimit: 1Mi}}, {hostPath: {path: /a}}, {projected: {sources: [{secret: {name: a}}]}}]}`, nil},
		{`{hostUsers: true, os: {name: linux}, securityContext: {seccompProfile: {type: RuntimeDefault}, appArmorProfile: {type: Unconfined}}}`, nil},
		{`{securityContext: {sysctls: [{name: kernel.shm_rmid_forced}, {name: net/ipv4/tcp_syncookies}]}}`, nil},
		{`{hostUsers: false, runtimeClassName: runc, securityContext: {sysctls: [{name: kernel/msgmax}]}}`, nil},
		{`{securityContext: {seLinuxOptions: {}, windowsOptions: {}}, containers: [{securityContext: {seLinuxOptions: {}, windowsOptions: {hostProcess: false}}}]}`, nil},
		{`{os: {name: windows}}`, []string{"rejected Failed to admit pod as the OS field doesn't match node OS"}},
		{
			`{initContainers: [{restartPolicy: Always, startupProbe: {exec: {command: [a]}}}], containers: [{restartPolicy: Never}]}`,
			nil,
		},
		{
			`{volumes: [{emptyDir: {}}, {iscsi: {}}], containers: [{}, {securityContext: {seLinuxOptions: {type: a}}}]}`,
			[]string{
				"ignored " + NoEffect("Pod", "p", "spec.containers[1].securityContext.seLinuxOptions", noSELinux),
				"rejected spec.volumes[1].iscsi: is not supported by Sampan's node agent: " + KnownVolumes,
			},
		},
	} {
		var got []string
		for _, f := range Check(read(t, one.spec), field.NewPath("spec")) {
			text := f.Message()
			if f.Effect == Ignored {
				text = Warnings("Pod", "p", []Finding{f})[0]
			}
			got = append(got, string(f.Effect)+" "+text)
		}
		if d := cmp.Diff(one.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", one.spec, d)
		}
	}
}

func TestRejectionIsFirstRejectedField(t *testing.T) {
	f := Rejection(read(t, `{containers: [{securityContext: {seLinuxOptions: {}}}], volumes: [{emptyDir: {}}, {iscsi: {}}, {cinder: {}}]}`))
	if f.Field != "spec.volumes[1].iscsi" || f.Reason != Unsupported {
		t.Errorf("rejected for %+v, want the first volume that is not supported", f)
	}
	if w := Warnings("Pod", "p", []Finding{f})[0]; w != "Pod \"p\": spec.volumes[1].iscsi: is rejected by Sampan's node agent: "+KnownVolumes {
		t.Errorf("warning %q", w)
	}
	if f := Rejection(read(t, `{containers: [{livenessProbe: {}}]}`)); f.Effect != "" {
		t.Errorf("rejected for %+v, want nothing", f)
	}
}
