package admission

import (
	"cmp"
	"context"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/podfeature"
)

// DefaultIngressClass gives new ingresses that name no class the default class: the newest, if
// there are several. It warns of an ingress that no controller can serve yet, because there is no class for it.
type DefaultIngressClass struct{ reader Reader }

// NewDefaultIngressClass returns the plug-in.
func NewDefaultIngressClass(r Reader) DefaultIngressClass { return DefaultIngressClass{r} }

// Name implements [Plugin].
func (DefaultIngressClass) Name() string { return "DefaultIngressClass" }

// ingressClass is the annotation by which ingresses named their class before they had a field for it.
const ingressClass = "kubernetes.io/ingress.class"

// Admit implements [Mutator].
func (p DefaultIngressClass) Admit(ctx context.Context, a *Attributes) error {
	ingress, ok := a.Object.(*networkingv1.Ingress)
	if !ok || a.Operation != Create || a.Subresource != "" {
		return nil
	}
	if _, annotated := ingress.Annotations[ingressClass]; annotated {
		return nil
	}
	all, err := p.reader.List(ctx, networkingv1.SchemeGroupVersion.WithResource("ingressclasses"), "", nil)
	if err != nil {
		return refuse(a, "%w", err)
	}
	named := ingress.Spec.IngressClassName
	switch class := newestDefault(all, networkingv1.AnnotationIsDefaultIngressClass); {
	case named != nil && !slices.ContainsFunc(all, func(o catalog.Object) bool { return o.GetName() == *named }):
		a.warn("%sspec.ingressClassName: there is no IngressClass %q: the Ingress has no effect until the controller of that class is installed", podfeature.About("Ingress", ingress.Name), *named)
	case named == nil && len(all) == 0:
		a.warn("%sspec: the Ingress has no effect until an ingress controller is installed: Sampan has none, and there is no IngressClass", podfeature.About("Ingress", ingress.Name))
	case named == nil && class != nil:
		ingress.Spec.IngressClassName = new(class.GetName())
	}
	return nil
}

// newestDefault returns the newest of the objects that an annotation marks as the default: the first
// by name, if they are of the same time. It returns nil if there is none.
func newestDefault(all []catalog.Object, annotations ...string) catalog.Object {
	all = slices.DeleteFunc(slices.Clone(all), func(o catalog.Object) bool {
		return !slices.ContainsFunc(annotations, func(name string) bool { return o.GetAnnotations()[name] == "true" })
	})
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b catalog.Object) int {
		return cmp.Or(b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
	})
}
