package apiservertest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

var crds = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// widgetsOf returns a definition of widgets in a group.
func widgetsOf(group string) *apiextensionsv1.CustomResourceDefinition {
	keep := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: named("widgets." + group),
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &keep,
				}},
			}},
		},
	}
}

// define creates a definition of widgets in a group by a server, and returns its name.
func (p *pair) define(server int, group string, change func(*apiextensionsv1.CustomResourceDefinition)) string {
	p.Helper()
	d := widgetsOf(group)
	if change != nil {
		change(d)
	}
	if _, err := p.apis[server].Create(p.Context(), crds, "", "", d, metav1.CreateOptions{}, ""); err != nil {
		p.Fatal(err)
	}
	return d.Name
}

// widget creates a widget of a group by a server.
func (p *pair) widget(server int, group, name string) error {
	w := &unstructured.Unstructured{}
	w.SetAPIVersion(group + "/v1")
	w.SetKind("Widget")
	w.SetName(name)
	gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}
	_, err := p.apis[server].Create(p.Context(), gvr, "", "", w, metav1.CreateOptions{}, "")
	return err
}

// definition returns a stored definition, or nil if there is none.
func (p *pair) definition(name string) *apiextensionsv1.CustomResourceDefinition {
	p.Helper()
	obj, err := p.apis[0].Get(p.Context(), crds, "", name, "")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		p.Fatal(err)
	}
	return obj.(*apiextensionsv1.CustomResourceDefinition)
}

// until waits for a state of a definition; it is nil when it is gone.
func (p *pair) until(name string, holds func(*apiextensionsv1.CustomResourceDefinition) bool) {
	p.Helper()
	for ev, err := range p.apis[0].Watch(p.Context(), crds, "", metav1.ListOptions{FieldSelector: "metadata.name=" + name}) {
		if err != nil {
			p.Fatal(err)
		}
		d, _ := ev.Object.(*apiextensionsv1.CustomResourceDefinition)
		if ev.Type == watch.Deleted {
			d = nil
		}
		if holds(d) {
			return
		}
	}
}

func established(d *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range d.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// A definition that one server has established is served by the other one as well: no object is refused because its
// server has not seen the definition yet.
func TestDefinitionOfOtherServerIsServed(t *testing.T) {
	p := openPair(t, mutant{}, nil)
	p.judge(0)
	for n := range 200 {
		group := fmt.Sprintf("g%d.example.com", n)
		if d := p.definition(p.define(n%2, group, nil)); !established(d) {
			t.Fatalf("server %d answers before the definition is judged: %v", n%2, d.Status)
		}
		if n%4 < 2 {
			answer := httptest.NewRecorder()
			p.handlers[1-n%2].ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/apis/"+group+"/v1/widgets", nil))
			if answer.Code != http.StatusOK {
				t.Fatalf("list by server %d after the definition by server %d: %d %s", 1-n%2, n%2, answer.Code, answer.Body)
			}
		}
		if err := p.widget(1-n%2, group, "w"); err != nil {
			t.Fatalf("object by server %d after its definition by server %d: %v", 1-n%2, n%2, err)
		}
	}
}

// Servers that do not judge change nothing of definitions. One that begins to judge judges the rest.
func TestJudgementIsHandedOver(t *testing.T) {
	p := openPair(t, mutant{}, nil)
	first := p.define(1, "first.example.com", nil)
	if d := p.definition(first); len(d.Status.Conditions) > 0 {
		t.Fatalf("a definition is judged although no server judges: %v", d.Status)
	}
	if err := p.widget(0, "first.example.com", "w"); !apierrors.IsNotFound(err) {
		t.Fatalf("object of a definition without a judgement: %v, want it not found", err)
	}
	stop := p.judge(0)
	p.until(first, established)
	for server := range p.apis {
		if err := p.widget(server, "first.example.com", fmt.Sprint("w", server)); err != nil {
			t.Fatal(err)
		}
	}
	stop()

	second := p.define(0, "second.example.com", nil)
	if err := p.apis[0].Delete(t.Context(), crds, "", first, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if d := p.definition(first); d == nil {
		t.Fatal("the objects of a definition were deleted although no server judges")
	}
	p.judge(1)
	p.until(second, established)
	p.until(first, func(d *apiextensionsv1.CustomResourceDefinition) bool { return d == nil })
}

// A name that two definitions of one group want belongs to one of them, whichever servers got them and whichever
// judges. The other one gets it when that is gone.
func TestNamesOfDefinitionsBelongToOne(t *testing.T) {
	p := openPair(t, mutant{}, nil)
	stop := p.judge(0)
	for n := range 50 {
		group := fmt.Sprintf("g%d.example.com", n)
		plurals := [2]string{"widgets", "gadgets"}
		p.each(func(server int) {
			p.define(server, group, func(d *apiextensionsv1.CustomResourceDefinition) {
				d.Name, d.Spec.Names.Plural, d.Spec.Names.Singular = plurals[server]+"."+group, plurals[server], ""
			})
		})
		stop()
		stop = p.judge(n % 2)
		var have []string
		for _, plural := range plurals {
			if established(p.definition(plural + "." + group)) {
				have = append(have, plural)
			}
		}
		if len(have) != 1 {
			t.Fatalf("%v are established with one kind, want one of them", have)
		}
		other := plurals[0]
		if other == have[0] {
			other = plurals[1]
		}
		if err := p.apis[1].Delete(t.Context(), crds, "", have[0]+"."+group, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		p.until(other+"."+group, established)
	}
}
