package apiextensions

import (
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/catalog"
)

type definition = apiextensionsv1.CustomResourceDefinition

// Finalizer keeps a definition until the objects of its resource are deleted.
const Finalizer = apiextensionsv1.CustomResourceCleanupFinalizer

// Kinds returns the kinds of apiextensions.k8s.io.
func Kinds() []*catalog.Kind {
	return []*catalog.Kind{{
		GroupVersionKind: apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"),
		Resource:         "customresourcedefinitions",
		Singular:         "customresourcedefinition",
		ShortNames:       []string{"crd", "crds"},
		Categories:       []string{"api-extensions"},
		New:              func() catalog.Object { return &definition{} },
		NewList:          func() runtime.Object { return &apiextensionsv1.CustomResourceDefinitionList{} },
		Conditional:      true,
		Generation:       true,
		Defined:          catalog.Defined{AnyFinalizer: true},
		Storing:          catalog.Storing{Bulky: true},
		Default:          catalog.Default(setDefaults),
		Prepare:          catalog.Prepare(prepare),
		Validate:         catalog.Validate(validate),
		Warn:             catalog.WarnChange(warn),
		Columns:          []catalog.Column{catalog.Created()},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: []string{"get", "patch", "update"},
			Shape: catalog.Part{
				Prepare: catalog.Prepare(func(d, old *definition) {
					d.Spec = old.Spec
				}),
				Validate: catalog.Validate(validateStatus),
			},
		}},
	}}
}

func setDefaults(d *definition) {
	names := &d.Spec.Names
	if names.Singular == "" {
		names.Singular = strings.ToLower(names.Kind)
	}
	if names.ListKind == "" && names.Kind != "" {
		names.ListKind = names.Kind + "List"
	}
	if d.Spec.Conversion == nil {
		d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	} else if hook := d.Spec.Conversion.Webhook; hook != nil && hook.ClientConfig != nil && hook.ClientConfig.Service != nil && hook.ClientConfig.Service.Port == nil {
		conversion, webhook, config, service := *d.Spec.Conversion, *hook, *hook.ClientConfig, *hook.ClientConfig.Service
		service.Port = new(int32(443))
		config.Service, webhook.ClientConfig, conversion.Webhook, d.Spec.Conversion = &service, &config, &webhook, &conversion
	}
	if len(d.Status.StoredVersions) == 0 {
		addStored(d)
	}
}

func prepare(d, old *definition) {
	d.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	if old != nil {
		d.Status = *old.Status.DeepCopy()
	} else if !slices.Contains(d.Finalizers, Finalizer) {
		d.Finalizers = append(slices.Clone(d.Finalizers), Finalizer)
	}
	addStored(d)
}

// addStored records that objects are stored in the storage version from now on.
func addStored(d *definition) {
	for _, v := range d.Spec.Versions {
		if v.Storage {
			if !slices.Contains(d.Status.StoredVersions, v.Name) {
				d.Status.StoredVersions = append(slices.Clone(d.Status.StoredVersions), v.Name)
			}
			return
		}
	}
}
