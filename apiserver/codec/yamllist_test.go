package codec_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/apiserver/codec"
)

// A list is converted object by object, and reads as if it had been converted at once.
func TestYAMLLists(t *testing.T) {
	kind := configMaps
	for _, texts := range [][]string{nil, {"a"}, {"", "a: b", "- a\n- b", "two\n\nlines\n", "  begins with space\n\n", "\n", "#", "end: ", "|\n x", "\t"}} {
		var items []*codec.Item
		for n, text := range texts {
			i, err := codec.NewItem(kind, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + n)), Annotations: map[string]string{"text": text}},
				Data:       map[string]string{"text": text, "more": text + text},
			})
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, i)
		}
		meta := metav1.ListMeta{ResourceVersion: "7", Continue: "x"}
		write := func(m codec.Media) []byte {
			var out bytes.Buffer
			w := bufio.NewWriter(&out)
			if err := codec.WriteList(w, m, kind, meta, items); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			return out.Bytes()
		}
		got := write(codec.Media{Encoding: codec.YAML})
		want, err := yaml.JSONToYAML(write(codec.Media{Encoding: codec.JSON}))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		back, err := yaml.YAMLToJSON(got)
		if err != nil || !json.Valid(back) {
			t.Errorf("it cannot be read: %v", err)
		}
	}
}

// TestListsEndWithTheirWriter checks that no more objects are converted once the client has gone.
func TestListsEndWithTheirWriter(t *testing.T) {
	gone := errors.New("gone")
	i, err := codec.NewItem(configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"text": strings.Repeat("x", 8192)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []codec.Media{{Encoding: codec.JSON}, {Encoding: codec.YAML}} {
		// To convert the second one would panic.
		if err := codec.WriteList(bufio.NewWriter(failing{gone}), m, configMaps, metav1.ListMeta{}, []*codec.Item{i, nil}); !errors.Is(err, gone) {
			t.Errorf("%v: %v", m, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
