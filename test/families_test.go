package test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/sampan-io/sampan/test/hosts"
)

// A familyCluster is a cluster with a real node on the first node of a world, with networks of
// its own of one IP family or two.
type familyCluster struct {
	*servicesWorld
	node     *hosts.Host
	pods     []netip.Prefix // the primary one first
	services []netip.Prefix
	uses     []corev1.IPFamily
	seen     map[string]bool // what the client has printed of a question
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

func networksOf(text string) (all []netip.Prefix) {
	for part := range strings.SplitSeq(text, ",") {
		all = append(all, netip.MustParsePrefix(part))
	}
	return all
}

// TestClustersOfEachFamily has clusters with real containers, and reaches Services of every kind in
// each of their families, in both modes of the proxy, from pods, the node and outside.
func TestClustersOfEachFamily(t *testing.T) {
	for _, tt := range []struct{ name, pods, services string }{
		{"dual", "10.77.0.0/16,fd77::/56", "10.98.0.0/16,fd98::/112"},
		{"dual, IPv6 first", "fd77::/56,10.77.0.0/16", "fd98::/112,10.98.0.0/16"},
		{"IPv6", "fd77::/56", "fd98::/112"},
		{"IPv4", "10.77.0.0/16", "10.98.0.0/16"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &familyCluster{servicesWorld: newServicesWorld(t), pods: networksOf(tt.pods), services: networksOf(tt.services), seen: map[string]bool{}}
			c.node = c.Nodes[0].Host
			for _, n := range c.pods {
				c.uses = append(c.uses, familyOf(n.Addr()))
			}
			before := c.surroundings()
			stop := c.withCluster("--pod-network="+tt.pods, "--service-network="+tt.services,
				"--cluster-dns-upstream=none", "--load-balancer-addresses="+c.balancers())
			c.run()
			if t.Failed() {
				t.Logf("the cluster said:\n%s", c.api.Process().Said())
			}
			stop()
			if after := c.surroundings(); after != before {
				t.Errorf("after:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// surroundings are what a cluster could leave on its node.
func (c *familyCluster) surroundings() string {
	c.t.Helper()
	out, err := c.node.Output("sh", "-c", `ip -o link | sed 's/ qlen.*//; s/<.*>//'; ip -o addr; ip route; ip -6 route; ip rule; ip -6 rule; nft list tables
		for f in ipv4/ip_forward ipv6/conf/all/forwarding ipv6/conf/eth0/accept_ra ipv6/conf/eth0/forwarding; do echo $f $(cat /proc/sys/net/$f); done`)
	if err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	return out
}

// balancers are unused addresses of the link.
func (c *familyCluster) balancers() string {
	var all []string
	for _, f := range c.uses {
		all = append(all, map[corev1.IPFamily]string{corev1.IPv4Protocol: "192.168.7.200-192.168.7.209", corev1.IPv6Protocol: "fd07::200-fd07::209"}[f])
	}
	return strings.Join(all, ",")
}

// sampan runs the program on the node.
func (c *familyCluster) sampan(args ...string) (string, error) {
	return c.node.Output(sampanProgram, append([]string{"--kubeconfig=" + c.api.Kubeconfig}, args...)...)
}

// want has a command succeed.
func (c *familyCluster) want(args ...string) string {
	c.t.Helper()
	out, err := c.sampan(args...)
	if err != nil {
		c.t.Fatalf("sampan %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

const demoImage = "sampan.local/demo:v1"

func demoPod(name string, labels map[string]string, args ...string) *corev1.Pod {
	field := func(env, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: env, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Image: demoImage, Args: args, Env: []corev1.EnvVar{field("POD_IPS", "status.podIPs"), field("HOST_IPS", "status.hostIPs")},
	}}}}
	if args[0] == "serve" {
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(80)}}}
	}
	return p
}

func (c *familyCluster) create(svc *corev1.Service) *corev1.Service {
	c.t.Helper()
	if svc.Spec.Ports == nil {
		svc.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	}
	if svc.Spec.Selector == nil {
		svc.Spec.Selector = map[string]string{"app": "web"}
	}
	made, err := c.cs.CoreV1().Services("default").Create(c.t.Context(), svc, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatalf("Service %s: %v", svc.Name, err)
	}
	return made
}

func (c *familyCluster) run() {
	t := c.t
	pods := c.cs.CoreV1().Pods("default")
	host := demoPod("host", nil, "sleep")
	host.Spec.HostNetwork = true
	for _, p := range []*corev1.Pod{demoPod("client", nil, "sleep"), demoPod("lone", map[string]string{"only": "lone"}, "serve"), host} {
		if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	web := demoPod("", map[string]string{"app": "web"}, "serve")
	_, err := c.cs.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: web.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: web.Labels}, Spec: web.Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.want("wait", "pod/client", "pod/lone", "pod/host", "deploy/web", "--for=ready", "--timeout=120s")
	c.nodeIsOfEachFamily()
	c.podsAreOfEachFamily()
	c.familiesAreAsAsked()
	c.names()
	c.servicesAnswer()
	c.podsReachOutside()
	// What goes over the kubelet API.
	if out := c.want("logs", "lone"); !strings.Contains(out, "listens on port 80") {
		t.Errorf("logs: %s", out)
	}
}

// nodeIsOfEachFamily looks at the Node, and at the Service of the API server.
func (c *familyCluster) nodeIsOfEachFamily() {
	node, err := c.cs.CoreV1().Nodes().Get(c.t.Context(), c.node.Name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	if len(node.Spec.PodCIDRs) != len(c.pods) || node.Spec.PodCIDR != node.Spec.PodCIDRs[0] {
		c.t.Errorf("the pod networks of the node are %s, %v", node.Spec.PodCIDR, node.Spec.PodCIDRs)
	}
	var internal []string
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			internal = append(internal, a.Address)
		}
	}
	for i, n := range c.pods {
		if i >= len(internal) || netip.MustParseAddr(internal[i]) != n.Addr().Next() || !n.Overlaps(netip.MustParsePrefix(node.Spec.PodCIDRs[i])) {
			c.t.Errorf("the node has the addresses %v and networks %v, want one of each of %v", internal, node.Spec.PodCIDRs, c.pods)
		}
	}
	api, err := c.cs.CoreV1().Services("default").Get(c.t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	if want := c.services[0].Addr().Next().String(); api.Spec.ClusterIP != want || *api.Spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack || !slices.Equal(api.Spec.IPFamilies, c.uses[:1]) {
		c.t.Errorf("the Service of the API server is %+v, want it at %s alone", api.Spec, want)
	}
	// By TLS, to each address that the certificate is for.
	for i := range c.services {
		for _, at := range []netip.AddrPort{netip.AddrPortFrom(c.pods[i].Addr().Next(), 6443), netip.AddrPortFrom(c.services[0].Addr().Next(), 443)} {
			cfg := *c.api.Config
			cfg.Host = "https://" + at.String()
			cs, err := kubernetes.NewForConfig(&cfg)
			if err == nil {
				_, err = cs.Discovery().ServerVersion()
			}
			if err != nil {
				c.t.Errorf("the API server at %s: %v", at, err)
			}
		}
	}
}

func (c *familyCluster) podsAreOfEachFamily() {
	t := c.t
	list, err := c.cs.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		var ips, hostIPs []string
		for _, ip := range p.Status.PodIPs {
			ips = append(ips, ip.IP)
		}
		for _, ip := range p.Status.HostIPs {
			hostIPs = append(hostIPs, ip.IP)
		}
		if len(ips) != len(c.pods) || len(hostIPs) != len(c.pods) || ips[0] != p.Status.PodIP || hostIPs[0] != p.Status.HostIP {
			t.Errorf("pod %s has the addresses %s %v of the host %s %v", p.Name, p.Status.PodIP, ips, p.Status.HostIP, hostIPs)
			continue
		}
		for i, n := range c.pods {
			if !n.Contains(netip.MustParseAddr(ips[i])) {
				t.Errorf("pod %s has the addresses %v, want them of %v", p.Name, ips, c.pods)
			}
		}
		if p.Spec.HostNetwork && !slices.Equal(ips, hostIPs) {
			t.Errorf("pod %s has the network of the host, and the addresses %v instead of %v", p.Name, ips, hostIPs)
		}
		if p.Name != "lone" {
			continue
		}
		env := c.want("exec", p.Name, "--", "/bin/demo", "get", "http://localhost/env") + "\n"
		for name, want := range map[string][]string{"POD_IPS": ips, "HOST_IPS": hostIPs} {
			if line := name + "=" + strings.Join(want, ","); !strings.Contains(env, line+"\n") {
				t.Errorf("the pod is not told %s:\n%s", line, env)
			}
		}
		hosts := c.want("exec", p.Name, "--", "/bin/demo", "read", "/etc/hosts")
		for _, ip := range ips {
			if !strings.Contains(hosts, ip+"\t"+p.Name) {
				t.Errorf("/etc/hosts does not name %s:\n%s", ip, hosts)
			}
		}
	}
}

// familiesAreAsAsked looks at what Services are given, as upstream gives it.
func (c *familyCluster) familiesAreAsAsked() {
	t := c.t
	both := c.uses
	if len(both) == 1 {
		both = []corev1.IPFamily{both[0], map[corev1.IPFamily]corev1.IPFamily{corev1.IPv4Protocol: corev1.IPv6Protocol, corev1.IPv6Protocol: corev1.IPv4Protocol}[both[0]]}
	}
	for _, tt := range []struct {
		name     string
		spec     corev1.ServiceSpec
		policy   corev1.IPFamilyPolicy
		families []corev1.IPFamily
		refused  string
	}{
		{"silent", corev1.ServiceSpec{}, corev1.IPFamilyPolicySingleStack, c.uses[:1], ""},
		{"prefers", corev1.ServiceSpec{IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack)}, corev1.IPFamilyPolicyPreferDualStack, c.uses, ""},
		{"requires", corev1.ServiceSpec{IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack)}, corev1.IPFamilyPolicyRequireDualStack, c.uses, "this cluster is not configured for dual-stack services"},
		{"other", corev1.ServiceSpec{IPFamilies: both[1:]}, corev1.IPFamilyPolicySingleStack, both[1:], "not configured on this cluster"},
		{"headless", corev1.ServiceSpec{ClusterIP: "None", IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack)}, corev1.IPFamilyPolicyPreferDualStack, c.uses, ""},
	} {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: tt.name}, Spec: tt.spec}
		svc.Spec.Ports, svc.Spec.Selector = []corev1.ServicePort{{Port: 80}}, map[string]string{"app": "web"}
		made, err := c.cs.CoreV1().Services("default").Create(t.Context(), svc, metav1.CreateOptions{})
		if len(c.uses) == 1 && tt.refused != "" {
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("Service %s in a cluster of one family: %v", tt.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("Service %s: %v", tt.name, err)
			continue
		}
		if *made.Spec.IPFamilyPolicy != tt.policy || !slices.Equal(made.Spec.IPFamilies, tt.families) || made.Spec.ClusterIP != made.Spec.ClusterIPs[0] {
			t.Errorf("Service %s is %+v, want %s %v", tt.name, made.Spec, tt.policy, tt.families)
		}
		if made.Spec.ClusterIP == "None" {
			continue
		}
		for i, ip := range made.Spec.ClusterIPs {
			if familyOf(netip.MustParseAddr(ip)) != tt.families[i] || len(made.Spec.ClusterIPs) != len(tt.families) {
				t.Errorf("Service %s has the addresses %v, want them of %v", tt.name, made.Spec.ClusterIPs, tt.families)
			}
		}
	}
}

// names asks the name server for addresses of each family, at each of its own, and for the names of these.
func (c *familyCluster) names() {
	t := c.t
	dns, err := c.cs.CoreV1().Services("kube-system").Get(t.Context(), "kube-dns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(dns.Spec.ClusterIPs) != len(c.services) {
		t.Errorf("the name server is at %v, want it in each of %v", dns.Spec.ClusterIPs, c.services)
	}
	conf := c.want("exec", "client", "--", "/bin/demo", "read", "/etc/resolv.conf")
	if want := "nameserver " + c.pods[0].Addr().Next().String() + "\n"; !strings.Contains(conf, want) || strings.Count(conf, "nameserver") != 1 {
		t.Errorf("pods are told\n%s\nwant %s", conf, want)
	}
	prefers, err := c.cs.CoreV1().Services("default").Get(t.Context(), "prefers", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.eventually("the pod finds the addresses", func() error {
		out, err := c.sampan("exec", "client", "--", "/bin/demo", "resolve", "prefers")
		got := strings.Fields(out)
		slices.Sort(got)
		if want := slices.Sorted(slices.Values(prefers.Spec.ClusterIPs)); err == nil && !slices.Equal(got, want) {
			return fmt.Errorf("prefers is %v, want %v", got, want)
		}
		return err
	})
	for _, at := range dns.Spec.ClusterIPs {
		r := &net.Resolver{PreferGo: true, Dial: func(_ context.Context, network, _ string) (net.Conn, error) {
			return c.node.Dial(network[:3], netip.AddrPortFrom(netip.MustParseAddr(at), 53), patient)
		}}
		for _, ip := range prefers.Spec.ClusterIPs {
			names, err := r.LookupAddr(t.Context(), ip)
			if err != nil || !slices.Equal(names, []string{"prefers.default.svc.cluster.local."}) {
				t.Errorf("%s says that %s is %v, %v", at, ip, names, err)
			}
			network := map[corev1.IPFamily]string{corev1.IPv4Protocol: "ip4", corev1.IPv6Protocol: "ip6"}[familyOf(netip.MustParseAddr(ip))]
			found, err := r.LookupNetIP(t.Context(), network, "headless.default.svc.cluster.local.")
			if err != nil || len(found) != 2 || !slices.ContainsFunc(c.pods, func(n netip.Prefix) bool { return n.Contains(found[0].Unmap()) }) {
				t.Errorf("%s says that the pods are %v, %v", at, found, err)
			}
		}
	}
}

// eventually tries until f has no fault any more.
func (c *familyCluster) eventually(what string, f func() error) {
	c.t.Helper()
	for began := time.Now(); ; {
		err := f()
		if err == nil {
			return
		}
		if time.Since(began) > time.Minute {
			c.wrong(1, "%s: %v", what, err)
			return
		}
		time.Sleep(20 * time.Millisecond) // others need the time
	}
}

// get asks over HTTP from a host.
func get(h *hosts.Host, url string) (string, error) {
	client := http.Client{Timeout: patient, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
		return h.Dial(network, netip.MustParseAddrPort(address), patient)
	}}}
	res, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

// answers checks that pods of a kind answer at an address of a Service.
func (c *familyCluster) answers(what, from string, at netip.AddrPort, wanted string) {
	c.t.Helper()
	url := "http://" + at.String() + "/"
	c.eventually(fmt.Sprintf("%s asks %s at %s", from, what, url), func() (err error) {
		var got string
		switch from {
		case "the node":
			got, err = get(c.node, url)
		case "a client outside":
			got, err = get(c.Client, url)
		default:
			got, err = c.sampan("exec", from, "--", "/bin/demo", "get", url)
		}
		if err == nil && !strings.HasPrefix(got, "sampan demo v1 pod "+wanted) {
			err = fmt.Errorf("it answers %q", got)
		}
		return err
	})
}

// servicesAnswer asks Services of every kind, in both modes.
func (c *familyCluster) servicesAnswer() {
	const outside, node = "a client outside", "the node"
	prefer := new(corev1.IPFamilyPolicyPreferDualStack)
	for m, mode := range []string{"kernel", "userspace"} {
		named := func(name string, spec corev1.ServiceSpec) *corev1.Service {
			spec.IPFamilyPolicy = prefer
			return c.create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + mode, Annotations: map[string]string{"sampan.dev/proxy-mode": mode}}, Spec: spec})
		}
		var external []string
		for _, f := range c.uses {
			external = append(external, hosts.At(hosts.Externals[map[corev1.IPFamily]int{corev1.IPv4Protocol: 0, corev1.IPv6Protocol: 1}[f]], 20+m).String())
		}
		plain := named("plain", corev1.ServiceSpec{})
		sticky := named("sticky", corev1.ServiceSpec{SessionAffinity: corev1.ServiceAffinityClientIP})
		ports := named("ports", corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort})
		local := named("local", corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal})
		far := named("external", corev1.ServiceSpec{ExternalIPs: external})
		balanced := named("balanced", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer})
		self := named("self", corev1.ServiceSpec{Selector: map[string]string{"only": "lone"}})
		c.eventually("addresses of load balancers", func() (err error) {
			if balanced, err = c.cs.CoreV1().Services("default").Get(c.t.Context(), balanced.Name, metav1.GetOptions{}); err == nil && len(balanced.Status.LoadBalancer.Ingress) != len(c.uses) {
				err = fmt.Errorf("there are %v", balanced.Status.LoadBalancer.Ingress)
			}
			return err
		})
		for i := range c.uses {
			at := func(ip string, port int32) netip.AddrPort {
				return netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(port))
			}
			for _, from := range []string{"client", "host", node, "lone"} {
				c.answers(plain.Name, from, at(plain.Spec.ClusterIPs[i], 80), "web")
				c.answers(sticky.Name, from, at(sticky.Spec.ClusterIPs[i], 80), "web")
				c.answers(self.Name, from, at(self.Spec.ClusterIPs[i], 80), "lone") // from lone: to itself
			}
			wire := c.node.IP[map[corev1.IPFamily]int{corev1.IPv4Protocol: 0, corev1.IPv6Protocol: 1}[c.uses[i]]].String()
			for _, from := range []string{"client", node, outside} {
				c.answers(ports.Name, from, at(wire, ports.Spec.Ports[0].NodePort), "web")
				c.answers(local.Name, from, at(wire, local.Spec.Ports[0].NodePort), "web")
				c.answers(far.Name, from, at(external[i], 80), "web")
				c.answers(balanced.Name, from, at(balanced.Status.LoadBalancer.Ingress[i].IP, 80), "web")
			}
			loopback := map[corev1.IPFamily]string{corev1.IPv4Protocol: "127.0.0.1", corev1.IPv6Protocol: "::1"}[c.uses[i]]
			c.answers(ports.Name, node, at(loopback, ports.Spec.Ports[0].NodePort), "web")
			inside := c.pods[i].Addr().Next().String()
			c.answers(ports.Name, "client", at(inside, ports.Spec.Ports[0].NodePort), "web")
		}
		if out := c.want("service", "trace", plain.Name, "--from=pod/client"); strings.Count(out, "\n└─ endpoints") != len(c.uses) {
			c.t.Errorf("the trace is\n%s\nwant one for each of %v", out, c.uses)
		}
	}
}

// podsReachOutside has a pod ask who does not know its network: it is seen as its node.
func (c *familyCluster) podsReachOutside() {
	for _, f := range c.uses {
		i := map[corev1.IPFamily]int{corev1.IPv4Protocol: 0, corev1.IPv6Protocol: 1}[f]
		l, err := c.Client.Listen(netip.AddrPortFrom(c.Client.IP[i], 8099))
		if err != nil {
			c.t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, netip.MustParseAddrPort(r.RemoteAddr).Addr())
		})}
		go func() { _ = server.Serve(l) }()
		out, err := c.sampan("exec", "client", "--", "/bin/demo", "get", "http://"+l.Addr().String()+"/")
		if err != nil || strings.TrimSpace(out) != c.node.IP[i].String() {
			c.wrong(1, "a pod that asks %s is seen as %s (%v), want %s", l.Addr(), out, err, c.node.IP[i])
		}
		_ = server.Close()
	}
}

// A host without IPv6 has clusters of IPv4, and says why it has no others.
func TestAHostWithoutIPv6HasClustersOfIPv4(t *testing.T) {
	w := newServicesWorld(t)
	node := w.Nodes[0].Host
	if err := node.Sysctl("net/ipv6/conf/all/disable_ipv6", "1"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	up := func(args ...string) (string, error) {
		return node.Output(sampanProgram, append([]string{"up", "--name=deaf", "--data-dir=" + filepath.Join(dir, "data"), "--kubeconfig=" + filepath.Join(dir, "config")}, args...)...)
	}
	for _, family := range []string{"dual", "ipv6"} {
		if out, err := up("--ip-family=" + family); err == nil || !strings.Contains(out, "IPv6 is switched off on this host") {
			t.Errorf("%s: %v\n%s", family, err, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
			t.Error("something was made")
		}
	}
	a, err := w.StartCluster(sampanProgram, t.TempDir(), 1, "--pod-network=10.77.0.0/16", "--service-network=10.98.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Process().Stop(); err != nil {
		t.Error(err)
	}
}
