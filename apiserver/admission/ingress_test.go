package admission_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/catalog"
)

func TestDefaultIngressClass(t *testing.T) {
	k := kind("networking.k8s.io", "ingresses", "Ingress", true)
	class := func(name string, age int, isDefault bool) catalog.Object {
		c := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1000-int64(age), 0))}}
		c.Annotations = map[string]string{"ingressclass.kubernetes.io/is-default-class": fmt.Sprint(isDefault)}
		return c
	}
	own := "own"
	for _, tt := range []struct {
		name    string
		classes []catalog.Object
		own     *string
		old     bool // named by the annotation
		want    string
		warning string
	}{
		{name: "no class", warning: "Ingress \"i\": spec: the Ingress has no effect until an ingress controller is installed: Sampan has none, and there is no IngressClass"},
		{name: "no default", classes: []catalog.Object{class("a", 0, false)}},
		{name: "the default", classes: []catalog.Object{class("a", 0, false), class("b", 1, true)}, want: "b"},
		{name: "the newest default", classes: []catalog.Object{class("a", 2, true), class("b", 1, true)}, want: "b"},
		{name: "the first by name", classes: []catalog.Object{class("b", 1, true), class("a", 1, true)}, want: "a"},
		{name: "its own", classes: []catalog.Object{class("a", 0, true), class("own", 0, false)}, own: &own, want: "own"},
		{name: "one that is not there", classes: []catalog.Object{class("a", 0, true)}, own: &own, want: "own", warning: `Ingress "i": spec.ingressClassName: there is no IngressClass "own": the Ingress has no effect until the controller of that class is installed`},
		{name: "its own by annotation", classes: []catalog.Object{class("a", 0, true)}, old: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemory(nil)
			for _, c := range tt.classes {
				m.put("ingressclasses", c)
			}
			ingress := &networkingv1.Ingress{ObjectMeta: meta("ship", "i"), Spec: networkingv1.IngressSpec{IngressClassName: tt.own}}
			if tt.old {
				ingress.Annotations = map[string]string{"kubernetes.io/ingress.class": ""}
			}
			p := admission.NewDefaultIngressClass(m)
			create := creating(k, ingress)
			if err := p.Admit(t.Context(), create); err != nil {
				t.Fatal(err)
			}
			if warning := strings.Join(create.Warnings, "\n"); warning != tt.warning {
				t.Errorf("the warning is %q, want %q", warning, tt.warning)
			}
			got := ""
			if ingress.Spec.IngressClassName != nil {
				got = *ingress.Spec.IngressClassName
			}
			if got != tt.want {
				t.Errorf("the class is %q, want %q", got, tt.want)
			}
			update := &networkingv1.Ingress{ObjectMeta: meta("ship", "i")}
			change := updating(k, update, update)
			if err := p.Admit(t.Context(), change); err != nil || len(change.Warnings) > 0 || update.Spec.IngressClassName != nil {
				t.Errorf("an update sets the class: %v", err)
			}
		})
	}
}
