package manifest

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/cli/resource"
)

func ingressForm() Form {
	var (
		class, backend     string
		rules, annotations []string
	)
	return Form{
		Use: "ingress NAME --rule=HOST/PATH=SERVICE:PORT[,tls[=SECRET]] | --default-backend=SERVICE:PORT", Aliases: []string{"ing"},
		Short: "Create an Ingress", Failure: "failed to create ingress",
		Mapping: resource.Mapping{GroupVersionResource: networkingv1.SchemeGroupVersion.WithResource("ingresses"), Kind: "Ingress", Namespaced: true},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&class, "class", "", "name of the IngressClass")
			f.StringArrayVar(&rules, "rule", nil, "HOST/PATH=SERVICE:PORT[,tls[=SECRET]]; a * at the end of the path matches every path below it; may be repeated")
			f.StringVar(&backend, "default-backend", "", "SERVICE:PORT for requests that match no rule")
			f.StringArrayVar(&annotations, "annotation", nil, "annotation, as KEY=VALUE; may be repeated")
		},
		Object: func(name string, _ []string) (runtime.Object, error) {
			i := &networkingv1.Ingress{
				TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress"}, ObjectMeta: meta(name),
			}
			if backend == "" && len(rules) == 0 {
				return nil, errors.New("not enough information provided: every ingress has to either specify a default-backend (which catches all traffic) or a list of rules (which catch specific paths)")
			}
			if err := ingressRules(&i.Spec, rules); err != nil {
				return nil, err
			}
			for _, text := range annotations {
				key, value, ok := strings.Cut(text, "=")
				if !ok {
					return nil, fmt.Errorf("annotation %s is invalid and should be in format key=[value]", text)
				}
				i.Annotations = with(i.Annotations, key, value)
			}
			if class != "" {
				i.Spec.IngressClassName = &class
			}
			if backend != "" {
				if strings.Count(backend, ":") != 1 {
					return nil, errors.New("default-backend should be in format servicename:serviceport")
				}
				i.Spec.DefaultBackend = new(ingressBackend(backend))
			}
			return i, nil
		},
	}
}

// ruleFormat is what kubectl takes for a rule: host, path, service, port, and tls with the name of a Secret. What
// follows is ignored.
var ruleFormat = regexp.MustCompile(`^[\w*\-.]*/.*=[\w\-]+:[\w\-]+(,tls=?([\w\-]+)?)?`)

// ingressRules puts rules into an Ingress. Those of one host become one, and so do the TLS entries of one Secret.
func ingressRules(spec *networkingv1.IngressSpec, rules []string) error {
	secured := map[string]bool{} // hosts
	for _, text := range rules {
		bad := fmt.Errorf("rule %s is invalid and should be in format host/path=svcname:svcport[,tls[=secret]]", text)
		if !ruleFormat.MatchString(text) {
			return bad
		}
		parts := strings.Split(text, ",")
		host, rest, _ := strings.Cut(parts[0], "/")
		path, backend, _ := strings.Cut(rest, "=")
		backend, _, _ = strings.Cut(backend, "=")
		if !strings.Contains(backend, ":") { // the path has a comma or a =
			return bad
		}
		kind := networkingv1.PathTypeExact
		path, all := strings.CutSuffix("/"+path, "*")
		if all {
			kind = networkingv1.PathTypePrefix
		}
		p := networkingv1.HTTPIngressPath{Path: path, PathType: &kind, Backend: ingressBackend(backend)}
		if i := slices.IndexFunc(spec.Rules, func(r networkingv1.IngressRule) bool { return r.Host == host }); i >= 0 {
			spec.Rules[i].HTTP.Paths = append(spec.Rules[i].HTTP.Paths, p)
		} else {
			spec.Rules = append(spec.Rules, networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{
				HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{p}},
			}})
		}
		if len(parts) == 2 && !secured[host] {
			secured[host] = true
			_, secret, _ := strings.Cut(parts[1], "=")
			secret, _, _ = strings.Cut(secret, "=")
			addTLS(spec, host, secret)
		}
	}
	return nil
}

func addTLS(spec *networkingv1.IngressSpec, host, secret string) {
	i := slices.IndexFunc(spec.TLS, func(t networkingv1.IngressTLS) bool { return t.SecretName == secret })
	switch {
	case i >= 0:
		spec.TLS[i].Hosts = append(spec.TLS[i].Hosts, host)
	case host != "":
		spec.TLS = append(spec.TLS, networkingv1.IngressTLS{Hosts: []string{host}, SecretName: secret})
	case secret != "":
		spec.TLS = append(spec.TLS, networkingv1.IngressTLS{SecretName: secret})
	}
}

// ingressBackend reads SERVICE:PORT.
func ingressBackend(text string) networkingv1.IngressBackend {
	parts := strings.Split(text, ":")
	b := &networkingv1.IngressServiceBackend{Name: parts[0]}
	if p := intstr.Parse(parts[1]); p.Type == intstr.Int {
		b.Port.Number = p.IntVal
	} else {
		b.Port.Name = p.StrVal
	}
	return networkingv1.IngressBackend{Service: b}
}
