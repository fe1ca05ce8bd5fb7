package references

import (
	"encoding/pem"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
)

func TestAnchorsOfBundlesAreThereOnce(t *testing.T) {
	bundle := func(words ...string) *certificatesv1.ClusterTrustBundle {
		b := &certificatesv1.ClusterTrustBundle{}
		for _, w := range words {
			b.Spec.TrustBundle += "# a comment\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(w)}))
		}
		return b
	}
	got := string(anchors(bundle("one", "two"), bundle("two", "three")))
	if strings.Count(got, "BEGIN CERTIFICATE") != 3 || strings.Contains(got, "comment") {
		t.Errorf("anchors are\n%s", got)
	}
	if again := string(anchors(bundle("three", "one"), bundle("two"))); again != got {
		t.Errorf("the order is not always the same:\n%s\n%s", got, again)
	}
}
