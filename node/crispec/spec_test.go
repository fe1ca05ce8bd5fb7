package crispec_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/resolvconf"
	"github.com/sampan-io/sampan/node/crispec"
)

func pod(edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "shop", UID: "u1", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a b": `say "hi"`}},
		Spec:       corev1.PodSpec{NodeName: "n1", ServiceAccountName: "robot", Containers: []corev1.Container{{Name: "web", Image: "demo"}}},
	}
	for _, f := range edit {
		f(p)
	}
	return p
}

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "1", "B": "$(A)"}
	lookup := func(n string) (string, bool) { v, ok := vars[n]; return v, ok }
	for text, want := range map[string]string{
		"":              "",
		"plain":         "plain",
		"$(A)":          "1",
		"x$(A)y$(A)":    "x1y1",
		"$(B)":          "$(A)", // what was put in is not expanded again
		"$(C)":          "$(C)",
		"$$(A)":         "$(A)",
		"$$$(A)":        "$1",
		"$A":            "$A",
		"$":             "$",
		"$(A":           "$(A",
		"cost: 5$":      "cost: 5$",
		"$()":           "$()",
		"$($(A))":       "$($(A))",
		"${A} $(A) $$x": "${A} 1 $x",
	} {
		if got, err := crispec.Expand(text, lookup); got != want || err != nil {
			t.Errorf("Expand(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
}

// TestExpansionIsBounded lets variables refer to variables, so that each is eight times as long as the one before.
func TestExpansionIsBounded(t *testing.T) {
	c := &corev1.Container{Env: []corev1.EnvVar{{Name: "E0", Value: strings.Repeat("x", 64)}}}
	for i := range 11 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("E%d", i+1), Value: strings.Repeat(fmt.Sprintf("$(E%d)", i), 8)})
	}
	const want = "environment variable E4 is longer than 131072 bytes after its references were expanded"
	if _, _, err := (crispec.Facts{Pod: &corev1.Pod{}}).Environment(c); err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
	long := strings.Repeat("x", 100<<10)
	lookup := func(string) (string, bool) { return long, true }
	if _, err := crispec.ExpandAll(slices.Repeat([]string{"$(A)"}, 100), lookup); err == nil || err.Error() != "the arguments are longer than 4194304 bytes" {
		t.Errorf("the error of long arguments is %v", err)
	}
	if got, err := crispec.ExpandAll([]string{"$(A)"}, lookup); err != nil || got[0] != long {
		t.Errorf("one long argument: %v", err)
	}
}

// objects are config maps and secrets by name.
type objects struct {
	configMaps map[string]map[string]string
	secrets    map[string]map[string][]byte
}

func (o objects) ConfigMap(_, name string) (*corev1.ConfigMap, error) {
	if d, ok := o.configMaps[name]; ok {
		return &corev1.ConfigMap{Data: d}, nil
	}
	return nil, fmt.Errorf("configmap %q not found", name)
}

func (o objects) Secret(_, name string) (*corev1.Secret, error) {
	if d, ok := o.secrets[name]; ok {
		return &corev1.Secret{Data: d}, nil
	}
	return nil, fmt.Errorf("secret %q not found", name)
}

func service(namespace, name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: ports}}
}

func facts(p *corev1.Pod) crispec.Facts {
	return crispec.Facts{
		Pod: p, IPs: []string{"10.0.0.5", "fd00::5"}, HostIPs: []string{"192.0.2.1"},
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")},
		Services: []*corev1.Service{
			service("default", "kubernetes", "10.96.0.1", corev1.ServicePort{Name: "https", Port: 443}),
			service("shop", "data-base", "10.96.0.7", corev1.ServicePort{Port: 5432, Protocol: corev1.ProtocolTCP}),
			service("shop", "headless", "None", corev1.ServicePort{Port: 1}),
			service("other", "hidden", "10.96.0.8", corev1.ServicePort{Port: 1}),
		},
		Objects: objects{
			configMaps: map[string]map[string]string{"settings": {"LEVEL": "high", "color": "red"}},
			secrets:    map[string]map[string][]byte{"key": {"token": []byte("t0p")}},
		},
	}
}

func field(path string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
}

func TestEnvironment(t *testing.T) {
	yes, no := true, false
	divisor := resource.MustParse("1Mi")
	tests := []struct {
		name string
		c    corev1.Container
		edit func(*corev1.Pod)
		want map[string]string
		err  string
	}{
		{name: "services of the namespace and of the API server", c: corev1.Container{}, want: map[string]string{
			"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_SERVICE_PORT_HTTPS": "443",
			"KUBERNETES_PORT": "tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP_PROTO": "tcp",
			"KUBERNETES_PORT_443_TCP_PORT": "443", "KUBERNETES_PORT_443_TCP_ADDR": "10.96.0.1",
			"DATA_BASE_SERVICE_HOST": "10.96.0.7", "DATA_BASE_SERVICE_PORT": "5432", "DATA_BASE_PORT": "tcp://10.96.0.7:5432",
			"DATA_BASE_PORT_5432_TCP": "tcp://10.96.0.7:5432", "DATA_BASE_PORT_5432_TCP_PROTO": "tcp",
			"DATA_BASE_PORT_5432_TCP_PORT": "5432", "DATA_BASE_PORT_5432_TCP_ADDR": "10.96.0.7", "HIDDEN_SERVICE_HOST": "", "HEADLESS_SERVICE_HOST": "",
		}},
		{
			name: "no service links", c: corev1.Container{}, edit: func(p *corev1.Pod) { p.Spec.EnableServiceLinks = &no },
			want: map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1", "DATA_BASE_SERVICE_HOST": ""},
		},
		{name: "literals, expanded in order", c: corev1.Container{Env: []corev1.EnvVar{
			{Name: "A", Value: "1"},
			{Name: "B", Value: "$(A)$(C)"},
			{Name: "C", Value: "3"},
			{Name: "DB", Value: "$(DATA_BASE_SERVICE_HOST)"},
			{Name: "A", Value: "2"},
		}}, want: map[string]string{"A": "2", "B": "1$(C)", "C": "3", "DB": "10.96.0.7"}},
		{name: "whole objects, and one that wins over them", c: corev1.Container{
			EnvFrom: []corev1.EnvFromSource{
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
				{Prefix: "S_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "key"}}},
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Optional: &yes}},
			},
			Env: []corev1.EnvVar{{Name: "color", Value: "blue"}},
		}, want: map[string]string{"LEVEL": "high", "color": "blue", "S_token": "t0p"}},
		{name: "keys of objects", c: corev1.Container{Env: []corev1.EnvVar{
			{Name: "L", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "LEVEL"}}},
			{Name: "T", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "key"}, Key: "token"}}},
			{Name: "N", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "key"}, Key: "none", Optional: &yes}}},
		}}, want: map[string]string{"L": "high", "T": "t0p", "N": ""}},
		{name: "a key that is not there", c: corev1.Container{Env: []corev1.EnvVar{
			{Name: "L", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "x"}}},
		}}, err: "couldn't find key x in ConfigMap shop/settings"},
		{name: "an object that is not there", c: corev1.Container{EnvFrom: []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}},
		}}, err: `secret "none" not found`},
		{name: "fields of the pod", c: corev1.Container{Env: []corev1.EnvVar{
			{Name: "NAME", ValueFrom: field("metadata.name")},
			{Name: "NS", ValueFrom: field("metadata.namespace")},
			{Name: "ID", ValueFrom: field("metadata.uid")},
			{Name: "APP", ValueFrom: field("metadata.labels['app']")},
			{Name: "NOTE", ValueFrom: field("metadata.annotations['a b']")},
			{Name: "NODE", ValueFrom: field("spec.nodeName")},
			{Name: "SA", ValueFrom: field("spec.serviceAccountName")},
			{Name: "IP", ValueFrom: field("status.podIP")},
			{Name: "IPS", ValueFrom: field("status.podIPs")},
			{Name: "HOST", ValueFrom: field("status.hostIP")},
		}}, want: map[string]string{
			"NAME": "web-1", "NS": "shop", "ID": "u1", "APP": "web", "NOTE": `say "hi"`, "NODE": "n1", "SA": "robot",
			"IP": "10.0.0.5", "IPS": "10.0.0.5,fd00::5", "HOST": "192.0.2.1",
		}},
		{name: "resources", c: corev1.Container{
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1500Ki")},
			},
			Env: []corev1.EnvVar{
				{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "requests.cpu"}}},
				{Name: "MEM", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory", Divisor: divisor}}},
				{Name: "MAX", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
			},
		}, want: map[string]string{"CPU": "1", "MEM": "2", "MAX": "4"}},
		{name: "a field that is not offered", c: corev1.Container{Env: []corev1.EnvVar{{Name: "X", ValueFrom: field("spec.hostNetwork")}}}, err: "unsupported fieldPath: spec.hostNetwork"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := pod()
			if tt.edit != nil {
				tt.edit(p)
			}
			list, known, err := facts(p).Environment(&tt.c)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Errorf("error is %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range tt.want {
				if known[name] != value {
					t.Errorf("%s is %q, want %q", name, known[name], value)
				}
			}
			for _, kv := range list {
				if known[kv.GetKey()] != string(kv.GetValue()) {
					t.Errorf("list and map differ in %s", kv.GetKey())
				}
			}
			if len(list) != len(known) {
				t.Errorf("%d in the list, %d in the map", len(list), len(known))
			}
		})
	}
}

func resources(requestCPU, requestMemory, limitCPU, limitMemory string) corev1.ResourceRequirements {
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		if cpu != "" {
			l[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return l
	}
	return corev1.ResourceRequirements{Requests: list(requestCPU, requestMemory), Limits: list(limitCPU, limitMemory)}
}

func TestResources(t *testing.T) {
	node := crispec.Capacity{MilliCPU: 4000, Memory: 8 << 30}
	tests := []struct {
		name   string
		qos    corev1.PodQOSClass
		r      corev1.ResourceRequirements
		shares int64
		quota  int64
		memory int64
		oom    int64
	}{
		{"nothing", corev1.PodQOSBestEffort, resources("", "", "", ""), 2, 0, 0, 1000},
		{"a request", corev1.PodQOSBurstable, resources("500m", "2Gi", "", ""), 512, 0, 0, 750},
		{"a tiny request", corev1.PodQOSBurstable, resources("1m", "1", "", ""), 2, 0, 0, 999},
		{"a huge request", corev1.PodQOSBurstable, resources("1", "8Gi", "", ""), 1024, 0, 0, 3},
		{"limits alone count as requests", corev1.PodQOSGuaranteed, resources("", "", "2", "1Gi"), 2048, 200_000, 1 << 30, -997},
		{"limits beyond 2^63", corev1.PodQOSGuaranteed, resources("", "", "9e15", "9223372036854776k"), 262144, 1 << 40, math.MaxInt64, -997},
		{"a limit below the least", corev1.PodQOSBurstable, resources("", "", "1m", ""), 2, 1000, 0, 999},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := corev1.Container{Resources: tt.r}
			r := crispec.Resources(pod(), tt.qos, &c, node)
			if r.GetCpuShares() != tt.shares || r.GetCpuQuota() != tt.quota || r.GetMemoryLimitInBytes() != tt.memory || r.GetOomScoreAdj() != tt.oom {
				t.Errorf("Resources = %v, want shares %d quota %d memory %d oom %d", r, tt.shares, tt.quota, tt.memory, tt.oom)
			}
		})
	}
}

func TestPodLimitsNeedLimitsOfEveryContainer(t *testing.T) {
	p := pod(func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Resources: resources("1", "", "1", "1Gi")}, {Resources: resources("1", "", "", "2Gi")}}
	})
	r := crispec.PodResources(p, corev1.PodQOSBurstable)
	if r.GetCpuShares() != 2048 || r.GetCpuQuota() != 0 || r.GetMemoryLimitInBytes() != 3<<30 {
		t.Errorf("PodResources = %v", r)
	}
}

func TestDNS(t *testing.T) {
	host, _ := resolvconf.Parse("nameserver 192.0.2.53\nsearch lan corp\noptions edns0 ndots:2\n")
	five := "5"
	tests := []struct {
		name    string
		policy  corev1.DNSPolicy
		cluster []string
		edit    func(*corev1.Pod)
		want    string
		missing bool
	}{
		{"default", corev1.DNSDefault, []string{"10.96.0.10"}, nil, "192.0.2.53; lan corp; edns0 ndots:2", false},
		{"cluster", corev1.DNSClusterFirst, []string{"10.96.0.10"}, nil, "10.96.0.10; shop.svc.c svc.c c lan corp; ndots:5", false},
		{"no cluster DNS", corev1.DNSClusterFirst, nil, nil, "192.0.2.53; lan corp; edns0 ndots:2", true},
		{"host network", corev1.DNSClusterFirst, []string{"10.96.0.10"}, func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "192.0.2.53; lan corp; edns0 ndots:2", false},
		{"host network with cluster", corev1.DNSClusterFirstWithHostNet, []string{"10.96.0.10"}, func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "10.96.0.10; shop.svc.c svc.c c lan corp; ndots:5", false},
		{"none, own", corev1.DNSNone, nil, func(p *corev1.Pod) {
			p.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}, Searches: []string{"x"}, Options: []corev1.PodDNSConfigOption{{Name: "rotate"}}}
		}, "192.0.2.1; x; rotate", false},
		{"merged", corev1.DNSDefault, nil, func(p *corev1.Pod) {
			p.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.53", "192.0.2.2"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: &five}}}
		}, "192.0.2.53 192.0.2.2; lan corp; edns0 ndots:5", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := pod(func(p *corev1.Pod) { p.Spec.DNSPolicy = tt.policy })
			if tt.edit != nil {
				tt.edit(p)
			}
			c, missing, omitted := crispec.DNS(p, host, tt.cluster, "c")
			if len(omitted) > 0 {
				t.Errorf("omitted: %q", omitted)
			}
			got := strings.Join(c.GetServers(), " ") + "; " + strings.Join(c.GetSearches(), " ") + "; " + strings.Join(c.GetOptions(), " ")
			if got != tt.want || missing != tt.missing {
				t.Errorf("DNS = %q, %t, want %q, %t", got, missing, tt.want, tt.missing)
			}
		})
	}
}

// TestDNSLimits is what kubelet's formDNSSearchFitsLimits and its like do.
func TestDNSLimits(t *testing.T) {
	long := strings.Repeat("a", 253)
	lists := func(n int, s string) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("%s%02d", s[2:], i))
		}
		return all
	}
	for _, tt := range []struct {
		name             string
		servers          []string
		searches         []string
		keepsServers     int
		keeps            int
		saysServers, say bool
	}{
		{"as many as there may be", lists(3, "192.0.2.1"), lists(32, "abcde"), 3, 32, false, false},
		{"more", lists(4, "192.0.2.1"), lists(33, "abcde"), 3, 32, true, true},
		{"2048 characters", nil, append(lists(8, long), "abcdefghijklmnop"), 0, 9, false, false},
		{"2049 characters", nil, append(lists(8, long), "abcdefghijklmnopq"), 0, 8, false, true},
		{"one that is too long", nil, []string{"a", long + "b", "c"}, 0, 2, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pod(func(p *corev1.Pod) { p.Spec.DNSPolicy = corev1.DNSDefault })
			c, _, omitted := crispec.DNS(p, resolvconf.Config{Servers: tt.servers, Searches: tt.searches}, nil, "c")
			if len(c.GetServers()) != tt.keepsServers || len(c.GetSearches()) != tt.keeps {
				t.Errorf("%d servers and %d search paths, want %d and %d", len(c.GetServers()), len(c.GetSearches()), tt.keepsServers, tt.keeps)
			}
			said := strings.Join(omitted, "\n")
			if strings.Contains(said, "nameserver line is: "+strings.Join(c.GetServers(), " ")) != tt.saysServers || strings.Contains(said, "search line is: "+strings.Join(c.GetSearches(), " ")) != tt.say {
				t.Errorf("omitted: %q", omitted)
			}
		})
	}
}

// TestHostsOfAFullHostname: the short name is known all the same.
func TestHostsOfAFullHostname(t *testing.T) {
	yes := true
	p := pod(func(p *corev1.Pod) {
		p.Spec.Hostname, p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = "front", "sites", &yes
	})
	if name, _ := crispec.Hostname(p, "c"); name != "front.sites.shop.svc.c" {
		t.Errorf("the host is called %s", name)
	}
	if got := crispec.Hosts(p, []string{"10.1.0.1"}, "c", ""); !strings.Contains(got, "\n10.1.0.1\tfront.sites.shop.svc.c\tfront\n") {
		t.Errorf("/etc/hosts is\n%s", got)
	}
}

func TestSandbox(t *testing.T) {
	share := true
	p := pod(func(p *corev1.Pod) {
		p.Spec.Hostname, p.Spec.Subdomain = "front", "sites"
		p.Spec.ShareProcessNamespace = &share
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 53, HostPort: 5353, Protocol: corev1.ProtocolUDP, HostIP: "127.0.0.1"}}
	})
	c := crispec.Sandbox(p, 2, crispec.Place{Logs: "/logs", Cgroup: "/c/pods/u1", Domain: "cluster.local"})
	if c.GetHostname() != "front" || c.GetMetadata().GetAttempt() != 2 || c.GetLabels()[crispec.PodUID] != "u1" || c.GetLabels()["app"] != "web" || c.GetLinux().GetCgroupParent() != "/c/pods/u1" {
		t.Errorf("sandbox is %v", c)
	}
	if m := c.GetPortMappings(); len(m) != 1 || m[0].GetHostPort() != 5353 || m[0].GetProtocol() != cri.Protocol_UDP {
		t.Errorf("ports are %v", m)
	}
	ns := c.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if ns.GetNetwork() != cri.NamespaceMode_POD || ns.GetPid() != cri.NamespaceMode_POD {
		t.Errorf("namespaces are %v", ns)
	}
	p.Spec.HostNetwork = true
	if c := crispec.Sandbox(p, 0, crispec.Place{}); c.GetHostname() != "" || c.GetPortMappings() != nil || c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() != cri.NamespaceMode_NODE {
		t.Errorf("sandbox in the host's network is %v", c)
	}
}

func TestHosts(t *testing.T) {
	p := pod(func(p *corev1.Pod) { p.Spec.Subdomain = "sites" })
	if got := crispec.Hosts(p, []string{"10.0.0.5"}, "c", ""); !strings.Contains(got, "10.0.0.5\tweb-1.sites.shop.svc.c\tweb-1\n") {
		t.Errorf("hosts:\n%s", got)
	}
	long := pod(func(p *corev1.Pod) { p.Name = strings.Repeat("a", 62) + "-bcd" })
	if name, _ := crispec.Hostname(long, "c"); name != strings.Repeat("a", 62) {
		t.Errorf("host name is %q", name)
	}
}

func making(p *corev1.Pod, image *cri.Image) crispec.Attempt {
	return crispec.Attempt{Facts: facts(p), Container: &p.Spec.Containers[0], Attempt: 3, Hash: "h", QOS: corev1.PodQOSBestEffort, Image: image}
}

func TestContainerConfig(t *testing.T) {
	user, no := int64(1000), false
	p := pod(func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Command, c.Args = []string{"run", "$(NAME)"}, []string{"$$(NAME)"}
		c.Env = []corev1.EnvVar{{Name: "NAME", Value: "v"}}
		c.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}, Drop: []corev1.Capability{"ALL"}}}
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user, FSGroup: &user, SupplementalGroups: []int64{7}}
	})
	c, err := making(p, &cri.Image{Id: "sha256:1"}).Config()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"run", "v", "$(NAME)"}, append(c.GetCommand(), c.GetArgs()...)); diff != "" {
		t.Error(diff)
	}
	if c.GetImage().GetImage() != "sha256:1" || c.GetImage().GetUserSpecifiedImage() != "demo" || c.GetLogPath() != "web/3.log" ||
		c.GetAnnotations()[crispec.RestartCount] != "3" || c.GetLabels()[crispec.ContainerName] != "web" {
		t.Errorf("config is %v", c)
	}
	s := c.GetLinux().GetSecurityContext()
	if s.GetRunAsUser().GetValue() != 1000 || !s.GetNoNewPrivs() || !slices.Equal(s.GetSupplementalGroups(), []int64{7, 1000}) ||
		!slices.Equal(s.GetCapabilities().GetAddCapabilities(), []string{"NET_ADMIN"}) || s.GetSeccomp().GetProfileType() != cri.SecurityProfile_Unconfined || len(s.GetMaskedPaths()) == 0 {
		t.Errorf("security is %v", s)
	}
}

func TestNonRootIsChecked(t *testing.T) {
	yes, zero, user := true, int64(0), int64(5)
	tests := []struct {
		name  string
		user  *int64
		image *cri.Image
		want  string
	}{
		{"image of root", nil, &cri.Image{Uid: &cri.Int64Value{}}, "container has runAsNonRoot and image will run as root"},
		{"image that says nothing", nil, &cri.Image{}, "container has runAsNonRoot and image will run as root"},
		{"image of a name", nil, &cri.Image{Username: "joe"}, "container has runAsNonRoot and image has non-numeric user (joe), cannot verify user is non-root"},
		{"image of a number", nil, &cri.Image{Uid: &cri.Int64Value{Value: 5}}, ""},
		{"asked for root", &zero, &cri.Image{}, "container's runAsUser breaks non-root policy"},
		{"asked for another", &user, &cri.Image{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := pod(func(p *corev1.Pod) {
				p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsNonRoot: &yes, RunAsUser: tt.user}
			})
			_, err := making(p, tt.image).Config()
			want := tt.want + ` (pod: "web-1_shop(u1)", container: web)`
			if got := fmt.Sprint(err); tt.want == "" && err != nil || tt.want != "" && got != want {
				t.Errorf("error is %v, want %q", err, want)
			}
		})
	}
}
