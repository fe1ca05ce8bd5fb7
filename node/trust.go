package node

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
)

// trust follows all ClusterTrustBundles while a pod of the node has one in a volume.
type trust struct {
	bundles *cache.Cache[*certificatesv1.ClusterTrustBundle]
	users   []types.UID // pods; guarded by references.mu
	cancel  context.CancelFunc
}

// trusts reports whether a volume of the pod has trust anchors in it.
func trusts(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil &&
			slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ClusterTrustBundle != nil })
	})
}

// holdTrust counts a pod that needs the bundles. The caller holds mu.
func (r *references) holdTrust(pod *corev1.Pod) {
	if !trusts(pod) {
		return
	}
	if r.trust == nil {
		t := &trust{bundles: cache.New(r.client, client.ClusterTrustBundles, cache.Options[*certificatesv1.ClusterTrustBundle]{Log: r.log}), cancel: func() {}}
		t.bundles.Subscribe(func(_, _ *certificatesv1.ClusterTrustBundle) {
			r.mu.Lock()
			users := slices.Clone(t.users)
			r.mu.Unlock()
			r.changed(users)
		})
		if r.start != nil {
			t.cancel = r.start(t.bundles.Run)
		}
		r.trust = t
	}
	if !slices.Contains(r.trust.users, pod.UID) {
		r.trust.users = append(r.trust.users, pod.UID)
	}
}

// releaseTrust ends the count. The caller holds mu.
func (r *references) releaseTrust(pod types.UID) {
	if r.trust == nil {
		return
	}
	r.trust.users = slices.DeleteFunc(r.trust.users, func(uid types.UID) bool { return uid == pod })
	if len(r.trust.users) == 0 {
		r.trust.cancel()
		r.trust = nil
	}
}

// TrustAnchors returns the certificates of the bundles that a volume asks for, as PEM, each once. There is none if no bundle
// matches and the volume says that this is no error.
func (o objects) TrustAnchors(s *corev1.ClusterTrustBundleProjection) ([]byte, error) {
	o.r.mu.Lock()
	t := o.r.trust
	o.r.mu.Unlock()
	if t == nil {
		return nil, errors.New("ClusterTrustBundles are not followed")
	}
	select {
	case <-t.bundles.Ready():
	case <-o.ctx.Done():
		return nil, fmt.Errorf("ClusterTrustBundles: %w", context.Cause(o.ctx))
	}
	optional := s.Optional != nil && *s.Optional
	switch {
	case s.Name != nil:
		b, found := t.bundles.Get("", *s.Name)
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
	for _, b := range t.bundles.List("") {
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
var anchorOrder = [2]uint64{rand.Uint64(), rand.Uint64()} //nolint:gochecknoglobals // written once

// anchors returns the certificates of the bundles, each once, in an order that is the same until the agent ends.
func anchors(bundles ...*certificatesv1.ClusterTrustBundle) []byte {
	var all []string
	for _, b := range bundles {
		rest := []byte(b.Spec.TrustBundle)
		for {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			all = append(all, string(block.Bytes))
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	rand.New(rand.NewPCG(anchorOrder[0], anchorOrder[1])).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) //nolint:gosec // no secret
	var out []byte
	for _, a := range all {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(a)})...)
	}
	return out
}
