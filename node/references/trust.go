package references

import (
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
)

// trusts reports whether a volume of the pod has trust anchors in it.
func trusts(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil &&
			slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ClusterTrustBundle != nil })
	})
}

// bundles returns a cache of all ClusterTrustBundles.
func (r *Set) bundles(string) *cache.Cache[*certificatesv1.ClusterTrustBundle] {
	return cache.New(r.client, client.ClusterTrustBundles, cache.Options[*certificatesv1.ClusterTrustBundle]{Log: r.log})
}

// TrustAnchors returns the certificates of the bundles that a volume asks for, as PEM, each once. There is none if no bundle
// matches and the volume says that this is no error.
func (o Objects) TrustAnchors(s *corev1.ClusterTrustBundleProjection) ([]byte, error) {
	o.r.mu.Lock()
	t := o.r.trust
	o.r.mu.Unlock()
	bundles, err := t.complete(o.ctx, "ClusterTrustBundles")
	if err != nil {
		return nil, err
	}
	optional := s.Optional != nil && *s.Optional
	switch {
	case s.Name != nil:
		b, found := bundles.Get("", *s.Name)
		if !found && !optional {
			return nil, fmt.Errorf("while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io %q not found", *s.Name)
		}
		if !found {
			return nil, nil
		}
		return anchors(b), nil
	case s.SignerName == nil:
		return nil, errors.New("ClusterTrustBundle projection requires either name or signerName to be set")
	}
	selector, err := metav1.LabelSelectorAsSelector(s.LabelSelector) // nil matches nothing
	if err != nil {
		return nil, fmt.Errorf("while parsing label selector: %w", err)
	}
	var found []*certificatesv1.ClusterTrustBundle
	for _, b := range bundles.List("") {
		if b.Spec.SignerName == *s.SignerName && selector.Matches(labels.Set(b.Labels)) {
			found = append(found, b)
		}
	}
	if len(found) == 0 && !optional {
		return nil, errors.New("combination of signerName and labelSelector matched zero ClusterTrustBundles")
	}
	return anchors(found...), nil
}

// anchorOrder is different after each start, so that no program comes to depend on an order of trust anchors.
var anchorOrder = [2]uint64{rand.Uint64(), rand.Uint64()} // written once

// anchors returns the certificates of the bundles, each once, in an order that is the same until the agent ends.
func anchors(bundles ...*certificatesv1.ClusterTrustBundle) []byte {
	var all []string
	for _, b := range bundles {
		all = append(all, CertificatesIn(b.Spec.TrustBundle)...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	rand.New(rand.NewPCG(anchorOrder[0], anchorOrder[1])).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) // no secret
	return InPEM(all)
}

// CertificatesIn returns the certificates in a text in PEM, without headers and the text between them.
func CertificatesIn(text string) []string {
	var all []string
	rest := []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return all
		}
		all = append(all, string(block.Bytes))
	}
}

// InPEM returns certificates in PEM.
func InPEM(certificates []string) []byte {
	var out []byte
	for _, c := range certificates {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(c)})...)
	}
	return out
}
