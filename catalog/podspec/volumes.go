package podspec

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) checkVolumes(at where) {
	c.volumes = map[string]*corev1.VolumeSource{}
	for i := range c.spec.Volumes {
		v, at := &c.spec.Volumes[i], at.index(i)
		c.name(at.child("name"), v.Name, validation.IsDNS1123Label)
		if v.Name != "" && c.volumes[v.Name] != nil {
			c.add(field.Duplicate(at.child("name").path, v.Name))
		}
		c.volumes[v.Name] = &v.VolumeSource
		c.checkVolume(v.Name, &v.VolumeSource, at)
	}
}

// types counts the fields of a source, a pointer to a struct of pointers, that are set,
// and refuses all but the first of them.
func (c *checker) types(source any, at where, tooMany string) (n int) {
	all := reflect.ValueOf(source).Elem()
	for i := range all.NumField() {
		if all.Field(i).IsNil() {
			continue
		}
		if n++; n > 1 {
			typ, _, _ := strings.Cut(all.Type().Field(i).Tag.Get("json"), ",")
			c.forbidden(at.child(typ), tooMany)
		}
	}
	return n
}

// checkVolume checks that a volume is of exactly one type, and that type.
func (c *checker) checkVolume(name string, s *corev1.VolumeSource, at where) {
	if c.types(s, at, "may not specify more than 1 volume type") == 0 {
		c.add(field.Required(at.path, "must specify a volume type"))
		return
	}
	switch {
	case s.EmptyDir != nil:
		if q := s.EmptyDir.SizeLimit; q != nil && q.Sign() < 0 {
			c.forbidden(at.child("emptyDir", "sizeLimit"), "SizeLimit field must be a valid resource quantity")
		}
	case s.HostPath != nil:
		c.checkHostPath(s.HostPath, at.child("hostPath"))
	case s.Secret != nil:
		c.checkFiles(s.Secret.SecretName, "secretName", s.Secret.DefaultMode, s.Secret.Items, at.child("secret"))
	case s.ConfigMap != nil:
		c.checkFiles(s.ConfigMap.Name, "name", s.ConfigMap.DefaultMode, s.ConfigMap.Items, at.child("configMap"))
	case s.DownwardAPI != nil:
		c.checkMode(s.DownwardAPI.DefaultMode, at.child("downwardAPI", "defaultMode"))
		c.checkDownward(s.DownwardAPI.Items, at.child("downwardAPI", "items"))
	case s.Projected != nil:
		c.checkProjected(s.Projected, at.child("projected"))
	case s.PersistentVolumeClaim != nil:
		if s.PersistentVolumeClaim.ClaimName == "" { // its form is not checked, as upstream
			c.required(at.child("persistentVolumeClaim", "claimName"))
		}
	case s.Ephemeral != nil:
		c.checkEphemeral(s.Ephemeral, at.child("ephemeral"))
	case s.Image != nil:
		c.checkImageVolume(s.Image, at.child("image"))
	case s.CSI != nil:
		c.checkDriver(s.CSI.Driver, at.child("csi", "driver"))
		if ref := s.CSI.NodePublishSecretRef; ref != nil {
			c.name(at.child("csi", "nodePublishSecretRef", "name"), ref.Name, validation.IsDNS1123Subdomain)
		}
	default:
		c.checkForeignVolume(name, s, at)
	}
}

func (c *checker) checkHostPath(h *corev1.HostPathVolumeSource, at where) {
	if h.Path == "" {
		c.required(at.child("path"))
		return
	}
	if hasBackstep(h.Path) {
		c.invalid(at.child("path"), h.Path, "must not contain '..'")
	}
	if h.Type != nil {
		supported(&c.report, at.child("type"), *h.Type,
			corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate,
			corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)
	}
}

const badMode = "must be a number between 0 and 0777 (octal), both inclusive"

func (c *checker) checkMode(mode *int32, at where) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.invalid(at, *mode, badMode)
	}
}

// checkFiles checks the files that a config map or secret gives.
func (c *checker) checkFiles(name, nameField string, mode *int32, items []corev1.KeyToPath, at where) {
	if name == "" {
		c.required(at.child(nameField))
	}
	c.checkMode(mode, at.child("defaultMode"))
	c.checkItems(items, at.child("items"))
}

func (c *checker) checkItems(items []corev1.KeyToPath, at where) {
	for i, item := range items {
		at := at.index(i)
		if item.Key == "" {
			c.required(at.child("key"))
		}
		c.checkFilePath(item.Path, at.child("path"))
		c.checkMode(item.Mode, at.child("mode"))
	}
}

// checkFilePath checks the path of a file within a volume. What begins with two
// dots is kept for replacing all files at once.
func (c *checker) checkFilePath(p string, at where) {
	if p == "" {
		c.required(at)
		return
	}
	c.checkDescending(p, at)
	if strings.HasPrefix(p, "..") && !hasBackstep(p) {
		c.invalid(at, p, "must not start with '..'")
	}
}

func (c *checker) checkDownward(items []corev1.DownwardAPIVolumeFile, at where) {
	for i, f := range items {
		at := at.index(i)
		c.checkFilePath(f.Path, at.child("path"))
		switch {
		case f.FieldRef != nil:
			c.checkFieldRef(f.FieldRef, fileFields, at.child("fieldRef"))
			if f.ResourceFieldRef != nil {
				c.invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
			}
		case f.ResourceFieldRef != nil:
			c.checkResourceRef(f.ResourceFieldRef, true, at.child("resourceFieldRef"))
		default:
			c.add(field.Required(at.path, "one of fieldRef and resourceFieldRef is required"))
		}
		c.checkMode(f.Mode, at.child("mode"))
	}
}

func (c *checker) checkProjected(p *corev1.ProjectedVolumeSource, at where) {
	c.checkMode(p.DefaultMode, at.child("defaultMode"))
	paths := map[string]bool{}
	claim := func(p string, at where) {
		if p = path.Clean(p); p != "." && paths[p] {
			c.invalid(at, p, "conflicting duplicate paths")
		}
		paths[p] = true
	}
	for i := range p.Sources {
		s, at := &p.Sources[i], at.child("sources").index(i)
		c.types(s, at, "may not specify more than 1 volume type per source") // none is valid, and gives no file
		c.checkSource(s, claim, at)
	}
}

func (c *checker) checkSource(s *corev1.VolumeProjection, claim func(string, where), at where) {
	items := func(items []corev1.KeyToPath, at where) {
		c.checkItems(items, at)
		for i, item := range items {
			if item.Path != "" {
				claim(item.Path, at.index(i).child("path"))
			}
		}
	}
	if s.Secret != nil {
		if s.Secret.Name == "" {
			c.required(at.child("secret", "name"))
		}
		items(s.Secret.Items, at.child("secret", "items"))
	}
	if s.ConfigMap != nil {
		if s.ConfigMap.Name == "" {
			c.required(at.child("configMap", "name"))
		}
		items(s.ConfigMap.Items, at.child("configMap", "items"))
	}
	if s.DownwardAPI != nil {
		at := at.child("downwardAPI", "items")
		c.checkDownward(s.DownwardAPI.Items, at)
		for i, f := range s.DownwardAPI.Items {
			if f.Path != "" {
				claim(f.Path, at.index(i).child("path"))
			}
		}
	}
	if t := s.ServiceAccountToken; t != nil {
		c.checkToken(t, at.child("serviceAccountToken"))
		if t.Path != "" {
			claim(t.Path, at.child("serviceAccountToken", "path"))
		}
	}
	if b := s.ClusterTrustBundle; b != nil {
		c.checkTrustBundle(b, at.child("clusterTrustBundle"))
		if b.Path != "" {
			claim(b.Path, at.child("clusterTrustBundle", "path"))
		}
	}
	if p := s.PodCertificate; p != nil {
		c.checkCertificate(p, at.child("podCertificate"))
		for name, file := range map[string]string{"credentialBundlePath": p.CredentialBundlePath, "keyPath": p.KeyPath, "certificateChainPath": p.CertificateChainPath} {
			if file != "" {
				c.checkFilePath(file, at.child("podCertificate", name))
				claim(file, at.child("podCertificate", name))
			}
		}
	}
}

const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

func (c *checker) checkToken(t *corev1.ServiceAccountTokenProjection, at where) {
	switch e := t.ExpirationSeconds; {
	case e == nil:
		c.required(at.child("expirationSeconds"))
	case *e < minTokenSeconds:
		c.invalid(at.child("expirationSeconds"), *e, "may not specify a duration less than 10 minutes")
	case *e > maxTokenSeconds:
		c.invalid(at.child("expirationSeconds"), *e, "may not specify a duration larger than 2^32 seconds")
	}
	c.checkFilePath(t.Path, at.child("path"))
}

func (c *checker) checkTrustBundle(b *corev1.ClusterTrustBundleProjection, at where) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		c.invalid(at, b, "only one of name and signerName may be used")
	case b.Name != nil:
		if *b.Name == "" {
			c.add(field.Required(at.child("name").path, "must be a valid object name"))
		}
		signer := ""
		if i := strings.LastIndexByte(*b.Name, ':'); i >= 0 {
			signer = strings.ReplaceAll((*b.Name)[:i], ":", "/")
		}
		for _, fault := range BundleName(signer, *b.Name, false) {
			c.invalid(at.child("name"), *b.Name, "not a valid clustertrustbundlename: "+fault)
		}
		if b.LabelSelector != nil {
			c.invalid(at.child("labelSelector"), b.LabelSelector, "labelSelector must be unset if name is specified")
		}
	case b.SignerName != nil:
		if *b.SignerName == "" {
			c.add(field.Required(at.child("signerName").path, "must be a valid signer name"))
		} else {
			c.add(ValidateSigner(*b.SignerName, at.child("signerName").path)...)
		}
		c.add(metav1validation.ValidateLabelSelector(b.LabelSelector, metav1validation.LabelSelectorValidationOptions{}, at.child("labelSelector").path)...)
	default:
		c.add(field.Required(at.path, "either name or signerName must be specified"))
	}
	c.checkFilePath(b.Path, at.child("path"))
}

// Limits of the validity of pod certificates. Signers of Kubernetes issue for a day at most.
const (
	minCertSeconds           = 60 * 60
	maxCertSeconds           = 91 * 24 * 60 * 60
	maxKubernetesCertSeconds = 24 * 60 * 60
)

func (c *checker) checkCertificate(p *corev1.PodCertificateProjection, at where) {
	c.add(ValidateSigner(p.SignerName, at.child("signerName").path)...)
	c.add(ValidateUserAnnotations(p.UserAnnotations, at.child("userAnnotations").path)...)
	requiredOf(&c.report, at.child("keyType"), p.KeyType, "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096")
	if s := p.MaxExpirationSeconds; s != nil {
		most := int32(maxCertSeconds)
		if strings.HasPrefix(p.SignerName, "kubernetes.io/") {
			most = maxKubernetesCertSeconds
		}
		switch {
		case *s < minCertSeconds:
			c.invalid(at.child("maxExpirationSeconds"), *s, fmt.Sprintf("if provided, maxExpirationSeconds must be >= %d", minCertSeconds))
		case *s > most:
			c.invalid(at.child("maxExpirationSeconds"), *s, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", most))
		}
	}
	if p.CredentialBundlePath == "" && p.KeyPath == "" && p.CertificateChainPath == "" {
		c.add(field.Required(at.path, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
}

func (c *checker) checkEphemeral(e *corev1.EphemeralVolumeSource, at where) {
	t := e.VolumeClaimTemplate
	if t == nil {
		c.required(at.child("volumeClaimTemplate"))
		return
	}
	at = at.child("volumeClaimTemplate")
	if at.path == nil { // see faults
		c.add(ValidateTemplateMeta(&t.ObjectMeta, field.NewPath("metadata"))...)
	} else {
		c.add(ValidateTemplateMeta(&t.ObjectMeta, at.path.Child("metadata"))...)
	}
	c.checkClaim(&t.Spec, at.child("spec"))
}

// ValidateTemplateMeta checks the metadata in a template of claims, whose names come from elsewhere: only labels and
// annotations may be set. The message for another one names the field of the Go type, as upstream's.
func ValidateTemplateMeta(m *metav1.ObjectMeta, at *field.Path) field.ErrorList {
	errs := apivalidation.ValidateAnnotations(m.Annotations, at.Child("annotations"))
	errs = append(errs, metav1validation.ValidateLabels(m.Labels, at.Child("labels"))...)
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Name != "Labels" && f.Name != "Annotations" && !v.Field(i).IsZero() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			errs = append(errs, field.Forbidden(at.Child(name), "cannot be set"))
		}
	}
	return errs
}

// maxDriverName is how long the name of a CSI driver may be.
const maxDriverName = 63

// checkDriver checks the name of a CSI driver.
func (r *report) checkDriver(name string, at where) {
	r.name(at, name, func(d string) []string { return validation.IsDNS1123Subdomain(strings.ToLower(d)) })
	if len(name) > maxDriverName {
		r.add(field.TooLong(at.path, "", maxDriverName))
	}
}

// ValidateClaimNames checks the names of the claims that are made for the ephemeral volumes of a pod, whose spec is at
// a path: volumes must not use these claims in another way.
func ValidateClaimNames(pod string, volumes []corev1.Volume, spec *field.Path) (errs field.ErrorList) {
	if pod == "" || !slices.ContainsFunc(volumes, func(v corev1.Volume) bool { return v.Ephemeral != nil }) {
		return nil
	}
	at, made := spec.Child("volumes"), map[string]bool{}
	for i := range volumes {
		v := &volumes[i]
		if v.Ephemeral == nil || v.Name == "" {
			continue
		}
		claim := pod + "-" + v.Name
		made[claim] = true
		for _, fault := range validation.IsDNS1123Subdomain(claim) {
			errs = append(errs, field.Invalid(at.Index(i).Child("name"), v.Name, fmt.Sprintf("PVC name %q: %v", claim, fault)))
		}
	}
	for i := range volumes {
		if c := volumes[i].PersistentVolumeClaim; c != nil && made[c.ClaimName] {
			errs = append(errs, field.Invalid(at.Index(i).Child("persistentVolumeClaim", "claimName"), c.ClaimName, "must not reference a PVC that gets created for an ephemeral volume"))
		}
	}
	return errs
}

func (c *checker) checkImageVolume(s *corev1.ImageVolumeSource, at where) {
	if s.Reference == "" {
		if c.isPod {
			c.required(at.child("reference"))
		}
	} else if strings.TrimSpace(s.Reference) != s.Reference {
		c.invalid(at.child("reference"), s.Reference, "must not have leading or trailing whitespace")
	}
	supported(&c.report, at.child("pullPolicy"), s.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}
