package manifest

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/client"
)

// A Form makes one kind of object from a name and flags, or has forms below it. It
// remembers the values of its flags, so it is good for one command line.
type Form struct {
	Use, Short string // as cobra has them
	Aliases    []string

	Below []Form // then it makes nothing itself, and the rest is not set

	Mapping resource.Mapping // of the object
	Flags   func(*pflag.FlagSet)
	Command bool // it takes a command behind --

	Required []string // flags without which nothing can be made

	// Connect is called before Object with what the form may ask the server, even in a dry run on the client; nil means that
	// the form needs no server.
	Connect func(Server)

	// Online reports, after the flags are read, whether Connect is called; nil means that it always is.
	Online func() bool

	// Failure stands before an error of the server, as kubectl has it; empty means the object.
	Failure string

	// Object makes the object, which says its kind. An error is the fault of the command
	// line.
	Object func(name string, command []string) (runtime.Object, error)
}

// A Server answers a form's questions about an object.
type Server struct {
	// Resource returns the resource that a name and a group mean, which may be a short name.
	Resource func(schema.GroupResource) (schema.GroupResource, error)

	// Objects returns the objects that an argument such as "cronjob/name" names.
	Objects func(argument string) ([]client.Object, error)

	Warn func(text string)
}

// A ServerError is an error of a [Server]: not a fault of the command line.
type ServerError struct{ Err error }

// Error implements error.
func (e *ServerError) Error() string { return e.Err.Error() }

// Unwrap returns the server's answer.
func (e *ServerError) Unwrap() error { return e.Err }

// Forms returns all of them, new.
func Forms() []Form {
	return []Form{
		namespaceForm(), hashed(configMapForm()),
		{Use: "secret", Short: "Create a Secret", Below: []Form{hashed(secretForm()), hashed(tlsForm()), hashed(registryForm())}},
		accountForm(), deploymentForm(), jobForm(), cronJobForm(),
		{Use: "service", Aliases: []string{"svc"}, Short: "Create a Service", Below: []Form{
			serviceForm("clusterip", corev1.ServiceTypeClusterIP), serviceForm("nodeport", corev1.ServiceTypeNodePort),
			serviceForm("loadbalancer", corev1.ServiceTypeLoadBalancer), externalForm(),
		}},
		ingressForm(), quotaForm(), disruptionBudgetForm(), priorityClassForm(),
		roleForm(), clusterRoleForm(), roleBindingForm(), clusterRoleBindingForm(),
	}
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func namespaceForm() Form {
	return Form{
		Use: "namespace NAME", Aliases: []string{"ns"}, Short: "Create a namespace", Mapping: resource.MappingOf(client.Namespaces),
		Object: func(name string, _ []string) (runtime.Object, error) {
			return &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: meta(name)}, nil
		},
	}
}

func accountForm() Form {
	return Form{
		Use: "serviceaccount NAME", Aliases: []string{"sa"}, Short: "Create a service account", Mapping: resource.MappingOf(client.ServiceAccounts),
		Object: func(name string, _ []string) (runtime.Object, error) {
			return &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: meta(name)}, nil
		},
	}
}

func configMapForm() Form {
	var in keyedInput
	return Form{
		Use: "configmap NAME [--from-file=[KEY=]PATH] [--from-literal=KEY=VALUE]", Aliases: []string{"cm"},
		Short: "Create a ConfigMap from files, directories or literals", Mapping: resource.MappingOf(client.ConfigMaps), Flags: in.flags,
		Object: func(name string, _ []string) (runtime.Object, error) {
			m := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta(name)}
			return m, in.read(fmt.Sprintf("ConfigMap %q", name), func(key string, value []byte, text bool) {
				if text {
					m.Data = with(m.Data, key, string(value))
				} else {
					m.BinaryData = with(m.BinaryData, key, value)
				}
			})
		},
	}
}

func with[V any](m map[string]V, key string, value V) map[string]V {
	if m == nil {
		m = map[string]V{}
	}
	m[key] = value
	return m
}

func newSecret(name string, kind corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta(name), Type: kind}
}

func secretForm() Form {
	var (
		in   keyedInput
		kind string
	)
	return Form{
		Use: "generic NAME [--from-file=[KEY=]PATH] [--from-literal=KEY=VALUE]", Short: "Create a Secret from files, directories or literals",
		Mapping: resource.MappingOf(client.Secrets),
		Flags: func(f *pflag.FlagSet) {
			in.flags(f)
			f.StringVar(&kind, "type", "", "type of the Secret")
		},
		Object: func(name string, _ []string) (runtime.Object, error) {
			s := newSecret(name, corev1.SecretType(kind))
			return s, in.read(fmt.Sprintf("Secret %q", name), func(key string, value []byte, _ bool) { s.Data = with(s.Data, key, value) })
		},
	}
}

// serviceOf returns a Service with kubectl's labels and selector.
func serviceOf(name string, kind corev1.ServiceType, ports ...corev1.ServicePort) *corev1.Service {
	labels := map[string]string{"app": name}
	s := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta(name),
		Spec: corev1.ServiceSpec{Type: kind, Selector: labels, Ports: ports},
	}
	s.Labels = labels
	return s
}

func portNumber(port int32) intstr.IntOrString { return intstr.FromInt32(port) }

func serviceForm(word string, kind corev1.ServiceType) Form {
	var (
		tcp       []string
		clusterIP string
		nodePort  int32
	)
	return Form{
		Use: word + " NAME --tcp=PORT[:TARGET]", Short: fmt.Sprintf("Create a Service of type %s", kind), Mapping: resource.MappingOf(client.Services),
		Flags: func(f *pflag.FlagSet) {
			f.StringSliceVar(&tcp, "tcp", nil, "PORT or PORT:TARGET; the target may be the name of a port")
			switch kind {
			case corev1.ServiceTypeClusterIP:
				f.StringVar(&clusterIP, "clusterip", "", "cluster IP of the Service, or None")
			case corev1.ServiceTypeNodePort:
				f.Int32Var(&nodePort, "node-port", 0, "node port (default: assigned by the server)")
			case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName:
			}
		},
		Object: func(name string, _ []string) (runtime.Object, error) {
			if len(tcp) == 0 && clusterIP != corev1.ClusterIPNone {
				return nil, errors.New("at least one tcp port specifier must be provided")
			}
			s := serviceOf(name, kind)
			s.Spec.ClusterIP = clusterIP
			for _, text := range tcp {
				p, err := servicePort(text)
				if err != nil {
					return nil, err
				}
				p.NodePort = nodePort
				s.Spec.Ports = append(s.Spec.Ports, p)
			}
			return s, nil
		},
	}
}

// servicePort reads PORT[:TARGET].
func servicePort(text string) (corev1.ServicePort, error) {
	bad := fmt.Errorf("--tcp=%s: want PORT or PORT:TARGET, with numbers from 1 to 65535 or the name of a port as the target", text)
	number := func(s string) (int32, bool) {
		n, err := strconv.ParseInt(s, 10, 32)
		return int32(n), err == nil && n > 0 && n < 1<<16 // it is checked
	}
	port, target, targeted := strings.Cut(text, ":")
	n, ok := number(port)
	if !ok {
		return corev1.ServicePort{}, bad
	}
	p := corev1.ServicePort{Name: strings.ReplaceAll(text, ":", "-"), Port: n, Protocol: corev1.ProtocolTCP, TargetPort: portNumber(n)}
	if targeted {
		if t, ok := number(target); ok {
			p.TargetPort = portNumber(t)
		} else if _, err := strconv.Atoi(target); err == nil || target == "" {
			return corev1.ServicePort{}, bad
		} else {
			p.TargetPort = intstr.FromString(target)
		}
	}
	return p, nil
}

func externalForm() Form {
	var (
		to  string
		tcp []string
	)
	return Form{
		Use: "externalname NAME --external-name=HOST", Short: "Create a Service of type ExternalName", Mapping: resource.MappingOf(client.Services),
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&to, "external-name", "", "DNS name of the host (required)")
			f.StringSliceVar(&tcp, "tcp", nil, "PORT or PORT:TARGET")
		},
		Object: func(name string, _ []string) (runtime.Object, error) {
			if to == "" {
				return nil, errors.New(`required flag(s) "external-name" not set`)
			}
			s := serviceOf(name, corev1.ServiceTypeExternalName)
			s.Spec.ExternalName = to
			for _, text := range tcp {
				p, err := servicePort(text)
				if err != nil {
					return nil, err
				}
				s.Spec.Ports = append(s.Spec.Ports, p)
			}
			return s, nil
		},
	}
}

func jobForm() Form {
	var (
		image, from string
		server      Server
	)
	return Form{
		Use:   "job NAME --image=IMAGE [-- COMMAND [ARGUMENT…]] | --from=cronjob/NAME",
		Short: "Create a Job, by its image or from the template of a CronJob", Mapping: resource.MappingOf(client.Jobs), Command: true,
		Connect: func(s Server) { server = s }, Online: func() bool { return from != "" }, Failure: "failed to create job",
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&image, "image", "", "image of the container")
			f.StringVar(&from, "from", "", "CronJob whose template the Job is created from, as cronjob/NAME")
		},
		Object: func(name string, rest []string) (runtime.Object, error) {
			switch {
			case (image == "") == (from == ""):
				return nil, errors.New("either --image or --from must be specified")
			case from != "" && len(rest) > 0:
				return nil, errors.New("cannot specify --from and command")
			case from != "":
				return jobFrom(name, from, server)
			}
			return &batchv1.Job{
				TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: meta(name),
				Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: name, Image: image, Command: rest}}, RestartPolicy: corev1.RestartPolicyNever,
				}}},
			}, nil
		},
	}
}

// jobFrom returns a Job from the template of a CronJob, as kubectl makes it: with an owner that does not block deletion, for
// which the user would need more rights.
func jobFrom(name, from string, s Server) (runtime.Object, error) {
	objs, err := s.Objects(from)
	if err != nil {
		return nil, &ServerError{err}
	}
	if len(objs) != 1 {
		return nil, errors.New("from must be an existing cronjob")
	}
	c, ok := objs[0].(*batchv1.CronJob)
	if !ok {
		return nil, fmt.Errorf("unknown object type %T", objs[0])
	}
	template := c.Spec.JobTemplate.DeepCopy()
	annotations := map[string]string{"cronjob.kubernetes.io/instantiate": "manual"}
	maps.Copy(annotations, template.Annotations)
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: template.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: c.Name, UID: c.UID, Controller: new(true)}},
		},
		Spec: template.Spec,
	}, nil
}

func deploymentForm() Form {
	var (
		images         []string
		replicas, port int32
	)
	return Form{
		Use: "deployment NAME --image=IMAGE [-- COMMAND [ARGUMENT…]]", Aliases: []string{"deploy", "dep"}, Short: "Create a Deployment", Command: true,
		Mapping: resource.Mapping{GroupVersionResource: appsv1.SchemeGroupVersion.WithResource("deployments"), Kind: "Deployment", Namespaced: true},
		Flags: func(f *pflag.FlagSet) {
			f.StringSliceVar(&images, "image", nil, "image of the container; repeat it for several containers (required)")
			f.Int32VarP(&replicas, "replicas", "r", 1, "number of replicas")
			f.Int32Var(&port, "port", -1, "port that the first container exposes")
		},
		Object: func(name string, rest []string) (runtime.Object, error) {
			switch {
			case len(images) == 0:
				return nil, errors.New(`required flag(s) "image" not set`)
			case len(images) > 1 && len(rest) > 0:
				return nil, errors.New("cannot specify multiple --image options and command")
			case replicas < 0:
				return nil, fmt.Errorf("--replicas=%d: want 0 or more", replicas)
			}
			labels := map[string]string{"app": name}
			d := &appsv1.Deployment{
				TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
				Spec: appsv1.DeploymentSpec{
					Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
				},
			}
			taken := map[string]bool{}
			for i, image := range images {
				c := corev1.Container{Name: containerName(image, taken), Image: image}
				if i == 0 {
					c.Command = rest
					if port >= 0 {
						c.Ports = []corev1.ContainerPort{{ContainerPort: port}}
					}
				}
				d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, c)
			}
			return d, nil
		},
	}
}

// containerName makes a name of an image that no container before has.
func containerName(image string, taken map[string]bool) string {
	name := image[strings.LastIndex(image, "/")+1:]
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	name = strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(name), "_", "-"), ".", "-")
	unique := name
	for n := 2; taken[unique]; n++ {
		unique = fmt.Sprintf("%s-%d", name, n)
	}
	taken[unique] = true
	return unique
}
