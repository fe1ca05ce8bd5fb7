package admission_test

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/storytest"
)

// TestLimitRangeStories plays requests to a server whose admission is the program's. The commands are
//
//	create RESOURCE NAME YAML
//	dry-run RESOURCE NAME YAML
//	patch RESOURCE NAME[/SUBRESOURCE] YAML
//	delete RESOURCE NAME
//	label KEY VALUE                  labels the namespace
//	show RESOURCE NAME FIELD…        each field as a path with dots
//
// all in the namespace ship.
func TestLimitRangeStories(t *testing.T) { playRequests(t, "testdata/limits") }

// TestDeviceStories plays the same commands with claims of devices.
func TestDeviceStories(t *testing.T) { playRequests(t, "testdata/devices") }

// TestQuotaStories plays the same commands with ResourceQuotas.
func TestQuotaStories(t *testing.T) { playRequests(t, "testdata/quotas") }

func playRequests(t *testing.T, dir string) {
	all := apiservertest.Kinds(t).Kinds()
	storytest.PlayCommands(t, dir, func(st *storytest.Story) storytest.Commands {
		s := serve(st.T)
		kind := func(resource string) *catalog.Kind {
			for _, k := range all {
				if k.Resource == resource && k.Hub() == k {
					return k
				}
			}
			st.T.Fatalf("no resource %q", resource)
			return nil
		}
		answer := func(err error) {
			if err != nil {
				st.Say("%s", err)
			}
		}
		text := func(words []string) []byte {
			data, err := yaml.YAMLToJSON([]byte(strings.Join(words, " ")))
			if err != nil {
				st.T.Fatal(err)
			}
			return data
		}
		create := func(words []string, opts metav1.CreateOptions) {
			k := kind(words[0])
			obj := k.New()
			if err := json.Unmarshal(text(words[2:]), obj); err != nil {
				st.T.Fatal(err)
			}
			obj.SetNamespace("ship")
			obj.SetName(words[1])
			_, err := s.admin.Create(st.T.Context(), k.GVR(), "ship", "", obj, opts, "")
			answer(err)
		}
		return storytest.Commands{
			"create":  func(words []string) { create(words, metav1.CreateOptions{}) },
			"dry-run": func(words []string) { create(words, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}) },
			"patch": func(words []string) {
				name, sub, _ := strings.Cut(words[1], "/")
				_, err := s.admin.Patch(st.T.Context(), kind(words[0]).GVR(), "ship", name, types.MergePatchType, text(words[2:]), metav1.PatchOptions{}, sub)
				answer(err)
			},
			"label": func(words []string) {
				patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{words[0]: words[1]}}})
				if err != nil {
					st.T.Fatal(err)
				}
				_, err = s.admin.Patch(st.T.Context(), kind("namespaces").GVR(), "", "ship", types.MergePatchType, patch, metav1.PatchOptions{}, "")
				answer(err)
			},
			"delete": func(words []string) {
				answer(s.admin.Delete(st.T.Context(), kind(words[0]).GVR(), "ship", words[1], metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
			},
			"show": func(words []string) {
				obj, err := s.admin.Get(st.T.Context(), kind(words[0]).GVR(), "ship", words[1], "")
				if err != nil {
					st.Say("%s", err)
					return
				}
				for _, path := range words[2:] {
					st.Say("%s", field(st.T, obj, path))
				}
			},
		}
	})
}

// field returns the part of an object at a path, as JSON; of a list the first item.
func field(t *testing.T, obj runtime.Object, path string) []byte {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	for step := range strings.SplitSeq(path, ".") {
		var parts map[string]json.RawMessage
		var items []json.RawMessage
		if json.Unmarshal(data, &items) == nil && len(items) > 0 {
			data = items[0]
		}
		if err := json.Unmarshal(data, &parts); err != nil {
			t.Fatal(err)
		}
		data = parts[step]
	}
	if len(data) == 0 {
		return []byte("none")
	}
	return data
}
