package manager

import (
	"crypto"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/balancer"
	"github.com/sampan-io/sampan/controller/certificates"
	"github.com/sampan-io/sampan/controller/nodeipam"
)

func TestSelectionIsThatOfUpstream(t *testing.T) {
	for _, tt := range []struct{ said, name, want string }{
		{"*", "deployment-controller", "on"},
		{"*", "bootstrap-signer-controller", "off"},
		{"*,bootstrapsigner", "bootstrap-signer-controller", "on"},
		{"", "deployment-controller", "off"},
		{"deployment", "deployment-controller", "on"},
		{"deployment", "replicaset-controller", "off"},
		{"*,-deployment-controller", "deployment-controller", "off"},
		{"-deployment,*", "deployment-controller", "off"},
		{"deployment,-deployment,*", "deployment-controller", "on"},
		{"-deployment,deployment,*", "deployment-controller", "off"},
		{"*", "deploymint", "off"},
	} {
		if got := Parse(tt.said).Selects(tt.name); got != (tt.want == "on") {
			t.Errorf("--controllers=%s: %s is selected: %t, want %s", tt.said, tt.name, got, tt.want)
		}
	}
}

func TestSelectionNamesWhatIsNone(t *testing.T) {
	err := Parse("*,-deploymint,job").Check()
	if err == nil || !strings.Contains(err.Error(), `"-deploymint" is not a controller`) || !strings.Contains(err.Error(), "deployment-controller") {
		t.Errorf("Check = %v", err)
	}
	if strings.Contains(err.Error(), `"job"`) {
		t.Errorf("Check = %v", err)
	}
	if err := Parse("scheduler").Check(); err == nil {
		t.Error("the scheduler is a controller")
	}
	if err := Parse("-scheduler").Check("scheduler"); err != nil {
		t.Error(err)
	}
}

type signer struct{}

func (signer) SignLegacy(string, string, types.UID, string) (string, error) { return "", nil }

type authority struct{}

func (authority) Sign(*x509.Certificate, crypto.PublicKey) ([]byte, error) { return nil, nil }
func (authority) NotAfter() time.Time                                      { return time.Time{} }

type roots string

func (r roots) CertificatePEM() []byte { return []byte(r) }
func (roots) OnChange(func())          {}

// full returns options with all that controllers may need.
func full(t *testing.T, selection string) Options {
	t.Helper()
	s := clienttest.New(t)
	var resources []client.Resource[client.Object]
	for p := range all() {
		for _, gvr := range p.needs {
			resources = append(resources, client.Resource[client.Object]{GroupVersionResource: gvr})
		}
	}
	return Options{
		Config: controller.Config{Client: s, Caches: cache.NewShared(s, nil)}, Selection: Parse(selection),
		Resources: resources, Roots: roots("PEM"), Signer: signer{}, Authority: authority{}, Pool: &balancer.Pool{},
		PodNetworks: &nodeipam.Pool{}, Servers: &certificates.Servers{},
	}
}

// TestTableNamesTheLoopsOfItsPackages checks that each loop of the table exists, and that only one controller has it.
func TestTableNamesTheLoopsOfItsPackages(t *testing.T) {
	made := New(full(t, "*,bootstrapsigner,tokencleaner"))
	if len(made.Left) > 0 {
		t.Fatalf("left out: %v", made.Left)
	}
	seen := map[string]string{}
	var names []string
	for p := range all() {
		names = append(names, p.name)
		for _, loop := range p.loops {
			if other := seen[loop]; other != "" {
				t.Errorf("%s and %s have the loop %s", other, p.name, loop)
			}
			seen[loop] = p.name
		}
	}
	for loop, name := range seen {
		n := 0
		for _, task := range made.Stage {
			if task.Name == loop {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s has %d tasks %s, want one", name, n, loop)
		}
	}
	for _, task := range made.Stage {
		if task.Ready != nil && seen[task.Name] == "" && !strings.HasPrefix(task.Name, "caches") {
			t.Errorf("no controller of the table has the loop %s", task.Name)
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, made.Names) {
		t.Errorf("made are %q, want %q", made.Names, names)
	}
}

func TestOneControllerRunsAlone(t *testing.T) {
	made := New(full(t, "statefulset"))
	var loops []string
	for _, task := range made.Stage {
		if task.Ready != nil && !strings.HasPrefix(task.Name, "caches") {
			loops = append(loops, task.Name)
		}
	}
	if !slices.Equal(loops, []string{"statefulset-controller"}) || !slices.Equal(made.Names, []string{"statefulset-controller"}) {
		t.Errorf("the loops are %q and the controllers %q", loops, made.Names)
	}
}

func TestControllersThatLackSomethingAreLeftOut(t *testing.T) {
	o := full(t, "*,-device-taint-eviction-controller")
	o.Signer, o.Authority, o.Pool, o.Roots, o.PodNetworks, o.Servers = nil, nil, nil, roots(""), nil, nil
	o.Resources = slices.DeleteFunc(o.Resources, func(r client.Resource[client.Object]) bool { return r.Resource == "devicetaintrules" })
	made := New(o)
	var left []string
	for _, l := range made.Left {
		left = append(left, l.Name+": "+l.Why)
		if slices.Contains(made.Names, l.Name) {
			t.Errorf("%s runs, and %s", l.Name, l.Why)
		}
	}
	want := []string{
		"certificatesigningrequest-serving-approving-controller: the names and addresses of the cluster's servers are not configured",
		"certificatesigningrequest-signing-controller: a certificate and a key to sign with are not configured",
		"kube-apiserver-serving-clustertrustbundle-publisher-controller: the authority of the API server is not configured",
		"node-ipam-controller: networks for pods are not configured",
		"resourceclaim-controller: the server does not serve devicetaintrules.resource.k8s.io in version v1",
		"root-ca-certificate-publisher-controller: the authority of the API server is not configured",
		"service-lb-controller: addresses for load balancers are not configured",
		"serviceaccount-token-controller: a private key is not configured",
	}
	if !slices.Equal(left, want) {
		t.Errorf("left out:\n%s\nwant:\n%s", strings.Join(left, "\n"), strings.Join(want, "\n"))
	}
	for _, task := range made.Stage {
		if slices.Contains([]string{"root-certificates", "service-lb-controller", "serviceaccount-token-controller", "resourceclaim-controller"}, task.Name) {
			t.Errorf("%s runs", task.Name)
		}
	}
}
