package tokens

import (
	"bytes"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/cli/show"
	"github.com/sampan-io/sampan/cluster/join"
)

// TestListPrintsAllFormats compares the output with that of kubeadm token list.
func TestListPrintsAllFormats(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	all := []*corev1.Secret{
		secret(join.Token{ID: "abcdef", Secret: "1234567890123456"}, 24*time.Hour, "for a node", now),
		{ObjectMeta: metav1.ObjectMeta{Name: secretPrefix + "bcdefg"}, Data: map[string][]byte{"token-id": []byte("bcdefg"), "token-secret": []byte("2345678901234567")}},
		{ObjectMeta: metav1.ObjectMeta{Name: secretPrefix + "cdefgh"}, Data: map[string][]byte{"token-id": []byte("cdefgh"), "token-secret": []byte("3456789012345678"), "expiration": []byte("soon")}},
	}
	const warning = "Warning: token cdefgh: expiration: must be a time such as 2006-01-02T15:04:05Z, got \"soon\"\n"
	for _, c := range []struct{ format, want, warning string }{
		{"", `TOKEN                     TTL         EXPIRES                USAGES                   DESCRIPTION   EXTRA GROUPS
abcdef.1234567890123456   1d          2026-01-03T03:04:05Z   authentication,signing   for a node    system:bootstrappers:kubeadm:default-node-token
bcdefg.2345678901234567   <forever>   <never>                <none>                   <none>        <none>
cdefgh.3456789012345678   <invalid>   soon                   <none>                   <none>        <none>
`, ""},
		{"json", `{
    "kind": "BootstrapToken",
    "apiVersion": "output.kubeadm.k8s.io/v1alpha3",
    "token": "abcdef.1234567890123456",
    "description": "for a node",
    "expires": "2026-01-03T03:04:05Z",
    "usages": [
        "authentication",
        "signing"
    ],
    "groups": [
        "system:bootstrappers:kubeadm:default-node-token"
    ]
}
{
    "kind": "BootstrapToken",
    "apiVersion": "output.kubeadm.k8s.io/v1alpha3",
    "token": "bcdefg.2345678901234567"
}
{
    "kind": "BootstrapToken",
    "apiVersion": "output.kubeadm.k8s.io/v1alpha3",
    "token": "cdefgh.3456789012345678"
}
`, warning},
		{"yaml", `apiVersion: output.kubeadm.k8s.io/v1alpha3
description: for a node
expires: "2026-01-03T03:04:05Z"
groups:
- system:bootstrappers:kubeadm:default-node-token
kind: BootstrapToken
token: abcdef.1234567890123456
usages:
- authentication
- signing
---
apiVersion: output.kubeadm.k8s.io/v1alpha3
kind: BootstrapToken
token: bcdefg.2345678901234567
---
apiVersion: output.kubeadm.k8s.io/v1alpha3
kind: BootstrapToken
token: cdefgh.3456789012345678
`, warning},
		{"name", "abcdef\nbcdefg\ncdefgh\n", warning},
		{`jsonpath={.token} {.groups}{"\n"}`, "abcdef.1234567890123456 [\"system:bootstrappers:kubeadm:default-node-token\"]\nbcdefg.2345678901234567 \ncdefgh.3456789012345678 \n", warning},
		{"custom-columns=T:.token,E:.expires", "T                         E\nabcdef.1234567890123456   2026-01-03T03:04:05Z\nbcdefg.2345678901234567   <none>\ncdefgh.3456789012345678   <none>\n", warning},
	} {
		format, err := show.Parse(c.format)
		if err != nil {
			t.Fatal(err)
		}
		var out, warnings bytes.Buffer
		if err := list(&out, &warnings, format, all, now); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want || warnings.String() != c.warning {
			t.Errorf("-o %s printed\n%s%s, want\n%s%s", c.format, &out, &warnings, c.want, c.warning)
		}
	}
}
