package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/declared"
	"github.com/sampan-io/sampan/catalog/podspec"
)

// longestBundle is how many bytes a bundle has at most.
const longestBundle = 1 << 20

type bundle = certificatesv1.ClusterTrustBundle

func trustBundles() *catalog.Kind {
	signer := func(b *bundle) string { return b.Spec.SignerName }
	return &catalog.Kind{
		GroupVersionKind: certificatesv1.SchemeGroupVersion.WithKind("ClusterTrustBundle"),
		Resource:         "clustertrustbundles",
		Conditional:      true,
		Singular:         "clustertrustbundle",
		New:              func() catalog.Object { return &bundle{} },
		NewList:          func() runtime.Object { return &certificatesv1.ClusterTrustBundleList{} },
		Validate:         declared.With(catalog.Validate(validateBundle), ""),
		ValidateName:     func(string, bool) []string { return nil }, // it depends on the signer
		Columns: []catalog.Column{
			catalog.Text("SignerName", certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"], func(b *bundle) string { return catalog.OrNone(signer(b)) }),
		},
		Fields: map[string]func(catalog.Object) string{"spec.signerName": catalog.Value(signer)},
	}
}

func validateBundle(b, old *bundle) (errs field.ErrorList) {
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	for _, fault := range podspec.BundleName(b.Spec.SignerName, b.Name, false) {
		errs = append(errs, field.Invalid(meta.Child("name"), b.Name, fault))
	}
	if b.GenerateName != "" {
		for _, fault := range podspec.BundleName(b.Spec.SignerName, b.GenerateName, true) {
			errs = append(errs, field.Invalid(meta.Child("generateName"), b.GenerateName, fault))
		}
	}
	signer := spec.Child("signerName")
	if b.Spec.SignerName != "" {
		errs = append(errs, podspec.ValidateSigner(b.Spec.SignerName, signer)...)
	}
	if old == nil || b.Spec.TrustBundle != old.Spec.TrustBundle {
		errs = append(errs, validateAnchors(b.Spec.TrustBundle, spec.Child("trustBundle"))...)
	}
	if old != nil {
		errs = append(errs, validation.ValidateImmutableField(b.Spec.SignerName, old.Spec.SignerName, signer)...)
	}
	return errs
}

// validateAnchors requires certificates of authorities in PEM, each once.
func validateAnchors(text string, at *field.Path) (errs field.ErrorList) {
	if len(text) > longestBundle {
		return field.ErrorList{field.TooLong(at, "", longestBundle)}
	}
	wrong := func(format string, args ...any) {
		errs = append(errs, field.Invalid(at, "<value omitted>", fmt.Sprintf(format, args...)))
	}
	found := map[string][]int{}
	rest := []byte(text)
	for i := 0; ; i++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if fault := anchorFault(block); fault != "" {
			wrong("entry %d %s", i, fault)
			continue
		}
		found[string(block.Bytes)] = append(found[string(block.Bytes)], i)
	}
	if len(errs) > 0 {
		return errs
	}
	if len(found) == 0 {
		wrong("at least one trust anchor must be provided")
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if len(found[key]) > 1 {
			wrong("duplicate trust anchor (indices %v)", found[key])
		}
	}
	return errs
}

// anchorFault says why a block is not the certificate of an authority, or "".
func anchorFault(block *pem.Block) string {
	if block.Type != certificateBlock {
		return "has bad block type: " + block.Type
	}
	if len(block.Headers) > 0 {
		return "has PEM block headers"
	}
	switch c, err := x509.ParseCertificate(block.Bytes); {
	case err != nil:
		return "does not parse as X.509"
	case !c.IsCA:
		return "does not have the CA bit set"
	case !c.BasicConstraintsValid:
		return "has invalid basic constraints"
	}
	return ""
}
