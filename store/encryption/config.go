package encryption

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/internal/document"
)

const (
	apiVersion = "apiserver.config.k8s.io/v1"
	kind       = "EncryptionConfiguration"
)

// configuration is an EncryptionConfiguration. Its fields are upstream's.
type configuration struct {
	metav1.TypeMeta `json:",inline"`

	Resources []resourceConfig `json:"resources"`
}

type resourceConfig struct {
	Resources []string         `json:"resources"`
	Providers []providerConfig `json:"providers"`
}

// providerConfig has exactly one field set once it was validated.
type providerConfig struct {
	AESGCM    *keysConfig `json:"aesgcm,omitempty"`
	AESCBC    *keysConfig `json:"aescbc,omitempty"`
	Secretbox *keysConfig `json:"secretbox,omitempty"`
	Identity  *struct{}   `json:"identity,omitempty"`
	KMS       *kmsConfig  `json:"kms,omitempty"`
}

type keysConfig struct {
	Keys []keyConfig `json:"keys"`
}

type keyConfig struct {
	Name   string `json:"name"`
	Secret string `json:"secret"` // base64
}

type kmsConfig struct {
	APIVersion string           `json:"apiVersion,omitempty"`
	Name       string           `json:"name"`
	CacheSize  *int32           `json:"cachesize,omitempty"`
	Endpoint   string           `json:"endpoint"`
	Timeout    *metav1.Duration `json:"timeout,omitempty"`
}

// defaultTimeout is upstream's for calls of a KMS plug-in.
const defaultTimeout = 3 * time.Second

// parse reads an EncryptionConfiguration. The source is what errors call it. Errors never contain a secret.
func parse(source string, data []byte) (*configuration, error) {
	doc, err := document.Parse(source, data)
	if err != nil {
		return nil, err
	}
	var head metav1.TypeMeta
	if err := yaml.Unmarshal(data, &head); err != nil || head.APIVersion != apiVersion || head.Kind != kind {
		return nil, fmt.Errorf("%s: apiVersion %q, kind %q: want %s, %s", source, head.APIVersion, head.Kind, apiVersion, kind)
	}
	c := &configuration{}
	errs, err := doc.DecodeKnown(c)
	if err != nil {
		return nil, err
	}
	c.setDefaults()
	errs = append(errs, c.validate()...)
	if err := doc.Faults(errs); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *configuration) setDefaults() {
	for i := range c.Resources {
		for _, p := range c.Resources[i].Providers {
			if p.KMS == nil {
				continue
			}
			if p.KMS.APIVersion == "" {
				p.KMS.APIVersion = "v1"
			}
			if p.KMS.Timeout == nil {
				p.KMS.Timeout = &metav1.Duration{Duration: defaultTimeout}
			}
		}
	}
}

// validate returns the faults, in upstream's words.
func (c *configuration) validate() (errs field.ErrorList) {
	root := field.NewPath("resources")
	if len(c.Resources) == 0 {
		return field.ErrorList{required(root, "at least one resources is required")}
	}
	names := sets.New[string]() // of KMS providers
	earlier := sets.New[schema.GroupResource]()
	for i, r := range c.Resources {
		path := root.Index(i)
		if len(r.Resources) == 0 {
			errs = append(errs, required(path.Child("resources"), fmt.Sprintf("at least one %s is required", path.Child("resources"))))
		}
		errs = append(errs, checkOverlap(r.Resources, path.Child("resources"))...)
		for j, name := range r.Resources {
			at := path.Child("resources").Index(j)
			if what := checkResource(name); what != "" {
				errs = append(errs, field.Invalid(at, name, what))
			} else if by, ok := masked(schema.ParseGroupResource(name), earlier); ok {
				errs = append(errs, field.Invalid(at, name, fmt.Sprintf("resource %q is masked by earlier rule %q", inYAML(schema.ParseGroupResource(name)), inYAML(by))))
			}
		}
		for _, name := range r.Resources {
			earlier.Insert(schema.ParseGroupResource(name))
		}
		if len(r.Providers) == 0 {
			errs = append(errs, required(path.Child("providers"), fmt.Sprintf("at least one %s is required", path.Child("providers"))))
		}
		for j, p := range r.Providers {
			errs = append(errs, p.validate(path.Child("providers").Index(j), names)...)
		}
	}
	return errs
}

func required(path *field.Path, detail string) *field.Error { return field.Required(path, detail) }

// everything is *.*, all resources of all groups.
var everything = schema.GroupResource{Group: "*", Resource: "*"}

// masked returns the earlier rule that makes a rule for r ineffective.
func masked(r schema.GroupResource, earlier sets.Set[schema.GroupResource]) (by schema.GroupResource, ok bool) {
	for _, by := range []schema.GroupResource{{Group: r.Group, Resource: "*"}, everything} {
		if earlier.Has(by) {
			return by, true
		}
	}
	return schema.GroupResource{}, false
}

// inYAML returns a resource as the file has it.
func inYAML(r schema.GroupResource) string {
	if r.Group == "" && r.Resource == "*" {
		return "*."
	}
	return r.String()
}

func checkOverlap(names []string, path *field.Path) (errs field.ErrorList) {
	duplicate, overlap := false, false
	for i, a := range names {
		for _, b := range names[i+1:] {
			a, b := schema.ParseGroupResource(a), schema.ParseGroupResource(b)
			switch {
			case a == b:
				duplicate = true
			case a == everything, b == everything, a.Group == b.Group && (a.Resource == "*" || b.Resource == "*"):
				overlap = true
			}
		}
	}
	if duplicate {
		errs = append(errs, field.Invalid(path, names, "the same resource cannot be specified multiple times"))
	}
	if overlap {
		errs = append(errs, field.Invalid(path, names, "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked"))
	}
	return errs
}

// checkResource returns the fault in the name of a resource, or "".
func checkResource(name string) string {
	r := schema.ParseGroupResource(name)
	switch {
	case strings.ToLower(name) != name:
		return "resource name should not contain capital letters"
	case name == "*":
		return "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
	case name == "apiserveripinfo", name == "serviceipallocations", name == "servicenodeportallocations":
		return "resources which do not have REST API/s cannot be encrypted"
	case r.Group == "events.k8s.io":
		return "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"
	case r.Group == "extensions":
		return "'extensions' group has been removed and cannot be used for encryption"
	case r.Group == "*" && r.Resource != "*":
		return "encrypting the same resource across groups is not supported"
	}
	return ""
}

func (p *providerConfig) validate(path *field.Path, names sets.Set[string]) field.ErrorList {
	set := 0
	for _, is := range []bool{p.AESGCM != nil, p.AESCBC != nil, p.Secretbox != nil, p.Identity != nil, p.KMS != nil} {
		if is {
			set++
		}
	}
	switch set {
	case 0:
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity")}
	case 1:
	default:
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "more than one provider specified in a single element, should split into different list elements")}
	}
	switch {
	case p.AESGCM != nil:
		return checkKeys(p.AESGCM.Keys, path.Child("aesgcm", "keys"), 16, 24, 32)
	case p.AESCBC != nil:
		return checkKeys(p.AESCBC.Keys, path.Child("aescbc", "keys"), 16, 24, 32)
	case p.Secretbox != nil:
		return checkKeys(p.Secretbox.Keys, path.Child("secretbox", "keys"), 32)
	case p.KMS != nil:
		errs := p.KMS.validate(path.Child("kms"), names)
		names.Insert(p.KMS.Name)
		return errs
	}
	return nil
}

func checkKeys(keys []keyConfig, path *field.Path, sizes ...int) (errs field.ErrorList) {
	if len(keys) == 0 {
		return field.ErrorList{required(path, "at least one keys is required")}
	}
	for i, k := range keys {
		at := path.Index(i)
		if k.Name == "" {
			errs = append(errs, required(at.Child("name"), "name is a mandatory field for a key"))
		}
		if k.Secret == "" {
			errs = append(errs, required(at.Child("secret"), "secret is a mandatory field for a key"))
			continue
		}
		secret, err := base64.StdEncoding.DecodeString(k.Secret)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(at.Child("secret"), "REDACTED", "secrets must be base64 encoded"))
		case !slices.Contains(sizes, len(secret)):
			errs = append(errs, field.Invalid(at.Child("secret"), "REDACTED", fmt.Sprintf("secret is not of the expected length, got %d, expected one of %v", len(secret), sizes)))
		}
	}
	return errs
}

func (k *kmsConfig) validate(path *field.Path, names sets.Set[string]) (errs field.ErrorList) {
	switch {
	case k.Name == "":
		errs = append(errs, required(path.Child("name"), "name is a mandatory field for a provider"))
	case strings.Contains(k.Name, ":"):
		errs = append(errs, field.Invalid(path.Child("name"), k.Name, fmt.Sprintf("invalid KMS provider name %s, must not contain ':'", k.Name)))
	case names.Has(k.Name):
		errs = append(errs, field.Invalid(path.Child("name"), k.Name, fmt.Sprintf("duplicate KMS provider name %s, names must be unique", k.Name)))
	}
	if k.Timeout.Duration <= 0 {
		errs = append(errs, field.Invalid(path.Child("timeout"), k.Timeout.Duration.String(), "timeout should be a positive value"))
	}
	if k.Endpoint == "" {
		errs = append(errs, field.Invalid(path.Child("endpoint"), "", "endpoint is a mandatory field for a kms"))
	} else if u, err := url.Parse(k.Endpoint); err != nil {
		errs = append(errs, field.Invalid(path.Child("endpoint"), k.Endpoint, fmt.Sprintf("invalid endpoint for kms provider, error: %v", err)))
	} else if u.Scheme != "unix" {
		errs = append(errs, field.Invalid(path.Child("endpoint"), k.Endpoint, fmt.Sprintf("unsupported scheme %q for KMS provider, only unix is supported", u.Scheme)))
	}
	switch k.APIVersion {
	case "v2":
		if k.CacheSize != nil {
			errs = append(errs, field.Invalid(path.Child("cachesize"), *k.CacheSize, "cachesize is not supported in v2"))
		}
	case "v1":
		// Upstream refuses it as well unless the feature gate KMSv1 is set.
		errs = append(errs, field.Invalid(path.Child("apiVersion"), k.APIVersion, "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead"))
	default:
		errs = append(errs, field.Invalid(path.Child("apiVersion"), k.APIVersion, "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported"))
	}
	return errs
}
