package pullrecord

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/internal/wholefile"
)

// version of the format of the files.
const version = "kubelet.config.k8s.io/v1beta1"

// mostCredentials is how many secrets a record may have before matching secrets are no longer added to it.
const mostCredentials = 100

// A Secret is a secret with a credential, by its coordinates and the hash of the credential.
type Secret struct {
	UID            string `json:"uid"`
	Namespace      string `json:"namespace"`
	Name           string `json:"name"`
	CredentialHash string `json:"credentialHash"`
}

func (s Secret) same(o Secret) bool {
	return s.UID == o.UID && s.Namespace == o.Namespace && s.Name == o.Name
}

// A ServiceAccount is a service account for which a plug-in had a credential.
type ServiceAccount struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Access is how an image was pulled: without a pod's credentials, or with those of secrets and service accounts.
type Access struct {
	KubernetesSecrets         []Secret         `json:"kubernetesSecrets,omitempty"`
	KubernetesServiceAccounts []ServiceAccount `json:"kubernetesServiceAccounts,omitempty"`
	NodePodsAccessible        bool             `json:"nodePodsAccessible,omitempty"`
}

type pulled struct {
	Kind              string            `json:"kind"`
	APIVersion        string            `json:"apiVersion"`
	LastUpdatedTime   time.Time         `json:"lastUpdatedTime"`
	ImageRef          string            `json:"imageRef"`
	CredentialMapping map[string]Access `json:"credentialMapping,omitempty"`
}

type intent struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Image      string `json:"image"`
}

// A Policy says for which images on the node the credentials of pods are verified, with the names of kubelets
// (imagePullCredentialsVerificationPolicy).
type Policy string

// The policies.
const (
	NeverVerify                  Policy = "NeverVerify"
	NeverVerifyPreloadedImages   Policy = "NeverVerifyPreloadedImages" // the default: only images that the node has pulled
	NeverVerifyAllowlistedImages Policy = "NeverVerifyAllowlistedImages"
	AlwaysVerify                 Policy = "AlwaysVerify"
)

// Options configures [Records].
type Options struct {
	Dir    string   // made if missing
	Policy Policy   // "" means NeverVerifyPreloadedImages
	Allow  []string // repositories for NeverVerifyAllowlistedImages; REPOSITORY/* for all below
	Now    func() time.Time
}

// Records are the records of a node. They are safe for concurrent use.
type Records struct {
	opts Options

	mu      sync.Mutex     // held over files: they are small
	pulling map[string]int // guarded by mu; pulls under way by image
}

// Open opens the records. Pulls that an earlier agent did not end are settled: those of an image in present become a
// record without access. present maps each name of each image to its id.
func Open(o Options, present map[string]string) (*Records, error) {
	if o.Policy == "" {
		o.Policy = NeverVerifyPreloadedImages
	}
	if !slices.Contains([]Policy{NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify}, o.Policy) {
		return nil, fmt.Errorf("image pull credentials verification policy: must be %s, %s, %s or %s, got %q",
			NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify, o.Policy)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Records{opts: o, pulling: map[string]int{}}
	for _, dir := range []string{r.path("pulling", ""), r.path("pulled", "")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("records of pulled images: %w", err)
		}
	}
	return r, r.settle(present)
}

func (r *Records) path(kind, key string) string {
	if key == "" {
		return filepath.Join(r.opts.Dir, kind)
	}
	return filepath.Join(r.opts.Dir, kind, fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(key))))
}

// settle handles the pulls that were under way when the last agent ended.
func (r *Records) settle(present map[string]string) error {
	files, err := r.files("pulling")
	if err != nil {
		return err
	}
	for _, file := range files {
		var i intent
		data, err := os.ReadFile(file)
		if err == nil && json.Unmarshal(data, &i) == nil {
			if ref, ok := present[i.Image]; ok {
				err = r.write(i.Image, ref, nil)
			}
		}
		if err == nil {
			err = os.Remove(file)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("records of pulled images: %w", err)
		}
	}
	return nil
}

// files returns the records of a kind.
func (r *Records) files(kind string) ([]string, error) {
	entries, err := os.ReadDir(r.path(kind, ""))
	if err != nil {
		return nil, fmt.Errorf("records of pulled images: %w", err)
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasPrefix(e.Name(), "sha256-") {
			files = append(files, filepath.Join(r.path(kind, ""), e.Name()))
		}
	}
	return files, nil
}

// Begin records that a pull of an image, by its name in the pod, begins (P1). Each call needs one of [Records.Pulled]
// or [Records.Failed].
func (r *Records) Begin(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := save(r.path("pulling", image), intent{"ImagePullIntent", version, image}); err != nil {
		return fmt.Errorf("failed to record image pull intent: %w", err)
	}
	r.pulling[image]++
	return nil
}

// Pulled records that an image was pulled and how. ref is its id. If that can't be written, the pull stays recorded as
// one that has begun, so that credentials are verified (P2).
func (r *Records) Pulled(image, ref string, access Access) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.write(image, ref, &access); err != nil {
		return err
	}
	return r.end(image)
}

// Failed records that a pull has failed.
func (r *Records) Failed(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end(image)
}

func (r *Records) end(image string) error {
	if r.pulling[image]--; r.pulling[image] > 0 {
		return nil
	}
	delete(r.pulling, image)
	if err := os.Remove(r.path("pulling", image)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// read returns the record of an image, or nil if there is none.
func (r *Records) read(ref string) (*pulled, error) {
	data, err := os.ReadFile(r.path("pulled", ref))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // there is none
	}
	if err != nil {
		return nil, err
	}
	p := &pulled{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("record of image %s: %w", ref, err)
	}
	if p.ImageRef != ref {
		return nil, nil // it is that of another image
	}
	return p, nil
}

// write adds access to the record of an image, or only makes one if access is nil.
func (r *Records) write(image, ref string, access *Access) error {
	p, err := r.read(ref)
	if err != nil {
		p = nil // replace a damaged record
	}
	changed := p == nil
	if p == nil {
		p = &pulled{Kind: "ImagePulledRecord", APIVersion: version, ImageRef: ref}
	}
	if access != nil {
		name := bare(image)
		merged, differs := merge(p.CredentialMapping[name], *access)
		if differs {
			if p.CredentialMapping == nil {
				p.CredentialMapping = map[string]Access{}
			}
			p.CredentialMapping[name], changed = merged, true
		}
	}
	if !changed {
		return nil
	}
	p.LastUpdatedTime = r.opts.Now().UTC().Truncate(time.Second)
	return save(r.path("pulled", ref), p)
}

// merge adds access to what was recorded.
func merge(old, more Access) (Access, bool) {
	switch {
	case old.NodePodsAccessible:
		return old, false
	case more.NodePodsAccessible:
		return Access{NodePodsAccessible: true}, true
	}
	out := Access{KubernetesSecrets: slices.Clone(old.KubernetesSecrets), KubernetesServiceAccounts: slices.Clone(old.KubernetesServiceAccounts)}
	changed := false
	for _, s := range more.KubernetesSecrets {
		i := slices.IndexFunc(out.KubernetesSecrets, s.same)
		switch {
		case i < 0:
			out.KubernetesSecrets, changed = append(out.KubernetesSecrets, s), true
		case out.KubernetesSecrets[i].CredentialHash != s.CredentialHash:
			out.KubernetesSecrets[i], changed = s, true
		}
	}
	sorting.Slice(out.KubernetesSecrets, func(a, b Secret) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.UID, b.Namespace+"/"+b.Name+"/"+b.UID)
	})
	for _, s := range more.KubernetesServiceAccounts {
		if !slices.Contains(out.KubernetesServiceAccounts, s) {
			out.KubernetesServiceAccounts, changed = append(out.KubernetesServiceAccounts, s), true
		}
	}
	sorting.Slice(out.KubernetesServiceAccounts, func(a, b ServiceAccount) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.UID, b.Namespace+"/"+b.Name+"/"+b.UID)
	})
	return out, changed
}

// bare cuts tag and digest off a name.
func bare(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndexByte(image, ':'); colon > strings.LastIndexByte(image, '/') {
		return image[:colon]
	}
	return image
}

// A Verdict is whether a pod may use an image that is on the node, by its name in the metrics of upstream's kubelet.
type Verdict string

// The verdicts.
const (
	PolicyAllows     Verdict = "credentialPolicyAllowed"
	RecordFound      Verdict = "credentialRecordFound" // a pod with the same access has pulled it
	MustAuthenticate Verdict = "mustAuthenticate"      // it has to be pulled: only the registry can say whether the pod may use it
)

// A Use is a pod's use of an image that is on the node.
type Use struct {
	Image    string // its name in the pod
	Ref      string // its id
	Imported bool   // it did not come from a registry by that name
}

// Check decides whether a pod may use an image that is on the node. own returns the access of the pod: its secrets and its
// service account with credentials that match the image. It is called only if it matters, and its error is returned. An
// image counts as preloaded by the names that were imported, even if it was pulled by others.
func (r *Records) Check(use Use, own func() (Access, error)) (Verdict, error) {
	image, ref := use.Image, use.Ref
	r.mu.Lock()
	p, readErr := r.read(ref)
	ours := p != nil || readErr != nil || r.pulling[image] > 0
	if !ours {
		_, err := os.Stat(r.path("pulling", image))
		ours = err == nil
	}
	r.mu.Unlock()
	if !r.verifies(image, ours && !use.Imported) {
		return PolicyAllows, nil
	}
	if p == nil {
		return MustAuthenticate, nil // P2
	}
	access, ok := p.CredentialMapping[bare(image)]
	switch {
	case !ok:
		return MustAuthenticate, nil
	case access.NodePodsAccessible:
		return RecordFound, nil
	case len(access.KubernetesSecrets) == 0 && len(access.KubernetesServiceAccounts) == 0:
		return MustAuthenticate, nil
	}
	given, err := own()
	if err != nil {
		return MustAuthenticate, err
	}
	for _, s := range given.KubernetesServiceAccounts {
		if slices.Contains(access.KubernetesServiceAccounts, s) {
			return RecordFound, nil
		}
	}
	for _, s := range given.KubernetesSecrets {
		for _, known := range access.KubernetesSecrets {
			equal := known.CredentialHash != "" && s.CredentialHash == known.CredentialHash
			same := s.same(known)
			if !equal && (!same || len(access.KubernetesSecrets) >= mostCredentials) {
				continue
			}
			if !equal || !same && len(access.KubernetesSecrets) < mostCredentials {
				r.mu.Lock()
				err := r.write(image, ref, &Access{KubernetesSecrets: []Secret{s}})
				r.mu.Unlock()
				if err != nil {
					return MustAuthenticate, nil // P2
				}
			}
			return RecordFound, nil
		}
	}
	return MustAuthenticate, nil
}

// Count returns how many records there are of pulls that have begun, and of images that were pulled.
func (r *Records) Count() (pulling, done int) {
	begun, _ := r.files("pulling") // what can't be read has no records
	ended, _ := r.files("pulled")
	return len(begun), len(ended)
}

// verifies applies the policy.
func (r *Records) verifies(image string, own bool) bool {
	switch r.opts.Policy {
	case NeverVerify:
		return false
	case NeverVerifyAllowlistedImages:
		name := bare(image)
		return !slices.ContainsFunc(r.opts.Allow, func(pattern string) bool {
			prefix, wild := strings.CutSuffix(pattern, "*")
			return pattern == name || wild && strings.HasSuffix(prefix, "/") && strings.HasPrefix(name, prefix)
		})
	case AlwaysVerify:
		return true
	default:
		return own
	}
}

// Prune removes the records of images that are not among refs and that were written before a time.
func (r *Records) Prune(refs []string, before time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	files, err := r.files("pulled")
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		var p pulled
		data, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(data, &p) != nil || !p.LastUpdatedTime.Before(before) || slices.Contains(refs, p.ImageRef) {
			continue
		}
		errs = append(errs, os.Remove(file))
	}
	return errors.Join(errs...)
}

// save replaces a record.
func save(file string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return wholefile.Write(file, data, 0o600, wholefile.Durable)
}
