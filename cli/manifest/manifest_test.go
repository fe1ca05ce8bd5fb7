package manifest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/cli/manifest"
)

// A maker runs command lines as verbs create and run do, without a server.
type maker struct{ warnings []string }

// make returns the objects of a command line such as "create namespace web".
func (m *maker) make(line string) ([]runtime.Object, error) {
	args := strings.Fields(line)
	verb, args := args[0], args[1:]
	if verb == "run" {
		return m.run(args)
	}
	form, args, err := formOf(manifest.Forms(), args)
	if err != nil {
		return nil, err
	}
	flags := pflag.NewFlagSet(line, pflag.ContinueOnError)
	if form.Flags != nil {
		form.Flags(flags)
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	for _, name := range form.Required {
		if !flags.Changed(name) {
			return nil, fmt.Errorf("required flag(s) %q not set", name)
		}
	}
	if form.Connect != nil && (form.Online == nil || form.Online()) {
		form.Connect(m.server())
	}
	obj, err := form.Object(flags.Arg(0), flags.Args()[1:])
	return []runtime.Object{obj}, err
}

// formOf returns the form that the first words name, and the other words.
func formOf(forms []manifest.Form, words []string) (manifest.Form, []string, error) {
	for _, f := range forms {
		name, _, _ := strings.Cut(f.Use, " ")
		switch {
		case name != words[0]:
		case len(f.Below) > 0:
			return formOf(f.Below, words[1:])
		default:
			return f, words[1:], nil
		}
	}
	return manifest.Form{}, nil, fmt.Errorf("there is no form %s", words[0])
}

func (*maker) run(args []string) ([]runtime.Object, error) {
	var pod manifest.PodFlags
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	pod.Add(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	p, service, err := pod.Objects(flags.Arg(0), flags.Args()[1:])
	switch {
	case err != nil:
		return nil, err
	case service != nil:
		return []runtime.Object{p, service}, nil
	}
	return []runtime.Object{p}, nil
}

// server knows a few resources by their names and short names.
func (m *maker) server() manifest.Server {
	known := map[string]schema.GroupResource{
		"po": {Resource: "pods"}, "pods": {Resource: "pods"}, "nodes": {Resource: "nodes"}, "services": {Resource: "services"},
		"deploy": {Group: "apps", Resource: "deployments"}, "deployments.apps": {Group: "apps", Resource: "deployments"},
		"clusterroles.rbac.authorization.k8s.io": {Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
	}
	return manifest.Server{
		Warn: func(text string) { m.warnings = append(m.warnings, text) },
		Resource: func(r schema.GroupResource) (schema.GroupResource, error) {
			found, ok := known[r.String()]
			if !ok {
				return r, fmt.Errorf("the server doesn't have a resource type %q", r.Resource)
			}
			return found, nil
		},
	}
}

// TestObjectsAreThoseOfKubectl compares with testdata/*.yaml: command lines, each with the output of kubectl v1.37 for it
// with --dry-run=client -o yaml.
func TestObjectsAreThoseOfKubectl(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	made := map[string]bool{} // the names of forms
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split("\n"+string(text), "\n# kubectl ")[1:] {
			line, want, _ := strings.Cut(block, "\n")
			t.Run(line, func(t *testing.T) {
				objs, err := new(maker).make(line)
				if err != nil {
					t.Fatal(err)
				}
				var docs []string
				for _, o := range objs {
					doc, err := yaml.Marshal(o)
					if err != nil {
						t.Fatal(err)
					}
					docs = append(docs, string(doc))
				}
				if diff := cmp.Diff(documents(want), docs); diff != "" {
					t.Errorf("kubectl (-), this package (+):\n%s", diff)
				}
			})
			for word := range strings.FieldsSeq(line) {
				made[word] = true
			}
		}
	}
	for _, f := range leaves(manifest.Forms()) {
		if name, _, _ := strings.Cut(f.Use, " "); !made[name] && name != "tls" { // its input is made by a test of its own
			t.Errorf("testdata has no command of %s", name)
		}
	}
}

// documents returns the documents of a YAML file that are not empty.
func documents(text string) (docs []string) {
	for d := range strings.SplitSeq("\n"+text, "\n---") {
		if d = strings.TrimLeft(d, "\n"); d != "" {
			docs = append(docs, strings.TrimRight(d, "\n")+"\n")
		}
	}
	return docs
}

// leaves returns the forms that make objects.
func leaves(forms []manifest.Form) (all []manifest.Form) {
	for _, f := range forms {
		if len(f.Below) > 0 {
			all = append(all, leaves(f.Below)...)
		} else {
			all = append(all, f)
		}
	}
	return all
}

func TestFormsAreComplete(t *testing.T) {
	for _, f := range leaves(manifest.Forms()) {
		if f.Use == "" || f.Short == "" || f.Object == nil || f.Mapping.Kind == "" || f.Mapping.Resource == "" {
			t.Errorf("%s: use, text, mapping and object are required: %+v", f.Use, f.Mapping)
		}
		flags := pflag.NewFlagSet(f.Use, pflag.ContinueOnError)
		if f.Flags != nil {
			f.Flags(flags)
		}
		for _, name := range f.Required {
			if flags.Lookup(name) == nil {
				t.Errorf("%s requires --%s, which it does not have", f.Use, name)
			}
		}
	}
}

// TestObjectsHaveTheKindOfTheirForm keeps the mapping, by which an object is sent, and the object together.
func TestObjectsHaveTheKindOfTheirForm(t *testing.T) {
	for _, line := range []string{
		"namespace a", "configmap a", "secret generic a", "secret docker-registry a --docker-username=u --docker-password=p", "serviceaccount a",
		"deployment a --image=b", "job a --image=b", "cronjob a --image=b --schedule=@daily", "service clusterip a --tcp=1", "service nodeport a --tcp=1",
		"service loadbalancer a --tcp=1", "service externalname a --external-name=b", "ingress a --default-backend=b:1", "quota a",
		"poddisruptionbudget a --selector=b=c --min-available=1", "priorityclass a", "role a --verb=get --resource=pods",
		"clusterrole a --verb=get --resource=pods", "rolebinding a --role=b", "clusterrolebinding a --clusterrole=b",
	} {
		form, _, err := formOf(manifest.Forms(), strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		objs, err := new(maker).make("create " + line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if got, want := objs[0].GetObjectKind().GroupVersionKind(), form.Mapping.GroupVersion().WithKind(form.Mapping.Kind); got != want {
			t.Errorf("%s makes a %v, its mapping says %v", line, got, want)
		}
	}
}

func TestRoleWarnsOfUnusualVerbs(t *testing.T) {
	var m maker
	if _, err := m.make("create role a --verb=get,fly,jump --resource=pods"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"'fly' is not a standard resource verb", "'jump' is not a standard resource verb"}; !slices.Equal(m.warnings, want) {
		t.Errorf("it warned %q", m.warnings)
	}
}

// TestMissingResourceIsNotTheFaultOfTheCommand has an error of the server, which verbs print without usage.
func TestMissingResourceIsNotTheFaultOfTheCommand(t *testing.T) {
	_, err := new(maker).make("create role a --verb=get --resource=ships")
	if _, ok := errors.AsType[*manifest.ServerError](err); !ok || err.Error() != `the server doesn't have a resource type "ships"` {
		t.Errorf("%T: %v", err, err)
	}
}
