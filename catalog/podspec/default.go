package podspec

import (
	"maps"
	"regexp"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	defaultGrace            = 30         // seconds between TERM and KILL
	defaultMode             = int32(420) // 0644
	defaultTokenExpiration  = int64(3600)
	defaultCertExpiration   = int32(86400)
	defaultTerminationLog   = "/dev/termination-log"
	defaultISCSIInterface   = "default"
	defaultRBDPool          = "rbd"
	defaultRBDUser          = "admin"
	defaultRBDKeyring       = "/etc/ceph/keyring"
	defaultScaleIOStorage   = "ThinProvisioned"
	defaultScaleIOFS        = "xfs"
	defaultAzureDiskFSType  = "ext4"
	defaultFieldRefsVersion = "v1"
)

// DefaultPod sets the defaults of the spec of a pod.
func DefaultPod(spec *corev1.PodSpec) {
	Default(spec)
	setDefault(&spec.EnableServiceLinks, true)
	for c := range containers(spec) {
		requestLimits(&c.Resources)
		if spec.HostNetwork {
			for i := range c.Ports {
				if c.Ports[i].HostPort == 0 {
					c.Ports[i].HostPort = c.Ports[i].ContainerPort
				}
			}
		}
	}
	if spec.Resources != nil {
		requestPodLimits(spec)
	}
}

// Default sets the defaults of a pod spec, of a pod or of a template.
func Default(spec *corev1.PodSpec) {
	orDefault(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	if spec.DeprecatedServiceAccount != spec.ServiceAccountName {
		spec.DeprecatedServiceAccount = spec.ServiceAccountName // the old name of the field
	}
	orDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	orDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	orDefault(&spec.SchedulerName, corev1.DefaultSchedulerName)
	setDefault(&spec.TerminationGracePeriodSeconds, defaultGrace)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for c := range containers(spec) {
		defaultContainer(c)
	}
	for i := range spec.EphemeralContainers {
		defaultContainer((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	if spec.Resources != nil {
		RoundUp(spec.Resources.Limits)
		RoundUp(spec.Resources.Requests)
	}
	RoundUp(spec.Overhead)
}

func defaultContainer(c *corev1.Container) {
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = pullPolicy(c.Image)
	}
	orDefault(&c.TerminationMessagePath, defaultTerminationLog)
	orDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		orDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				setDefault(&from.FileKeyRef.Optional, false)
			}
		}
	}
	RoundUp(c.Resources.Limits)
	RoundUp(c.Resources.Requests)
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(p)
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	orDefault(&p.TimeoutSeconds, 1)
	orDefault(&p.PeriodSeconds, 10)
	orDefault(&p.SuccessThreshold, 1)
	orDefault(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		setDefault(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(h *corev1.HTTPGetAction) {
	if h == nil {
		return
	}
	orDefault(&h.Path, "/")
	orDefault(&h.Scheme, corev1.URISchemeHTTP)
}

func defaultFieldRef(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		orDefault(&ref.APIVersion, defaultFieldRefsVersion)
	}
}

func defaultVolume(v *corev1.Volume) {
	s := &v.VolumeSource
	if *s == (corev1.VolumeSource{}) {
		s.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if s.Secret != nil {
		setDefault(&s.Secret.DefaultMode, defaultMode)
	}
	if s.ConfigMap != nil {
		setDefault(&s.ConfigMap.DefaultMode, defaultMode)
	}
	if s.DownwardAPI != nil {
		setDefault(&s.DownwardAPI.DefaultMode, defaultMode)
		for i := range s.DownwardAPI.Items {
			defaultFieldRef(s.DownwardAPI.Items[i].FieldRef)
		}
	}
	if s.Projected != nil {
		setDefault(&s.Projected.DefaultMode, defaultMode)
		for _, p := range s.Projected.Sources {
			if p.ServiceAccountToken != nil {
				setDefault(&p.ServiceAccountToken.ExpirationSeconds, defaultTokenExpiration)
			}
			if p.DownwardAPI != nil {
				for i := range p.DownwardAPI.Items {
					defaultFieldRef(p.DownwardAPI.Items[i].FieldRef)
				}
			}
			if p.PodCertificate != nil {
				setDefault(&p.PodCertificate.MaxExpirationSeconds, defaultCertExpiration)
			}
		}
	}
	if s.HostPath != nil {
		setDefault(&s.HostPath.Type, corev1.HostPathUnset)
	}
	if s.Image != nil && s.Image.PullPolicy == "" {
		s.Image.PullPolicy = pullPolicy(s.Image.Reference)
	}
	if s.Ephemeral != nil && s.Ephemeral.VolumeClaimTemplate != nil {
		DefaultClaim(&s.Ephemeral.VolumeClaimTemplate.Spec)
	}
	defaultForeignVolume(s)
}

// defaultForeignVolume fills in the sources that name storage outside the
// cluster.
func defaultForeignVolume(s *corev1.VolumeSource) {
	if s.ISCSI != nil {
		orDefault(&s.ISCSI.ISCSIInterface, defaultISCSIInterface)
	}
	if s.RBD != nil {
		orDefault(&s.RBD.RBDPool, defaultRBDPool)
		orDefault(&s.RBD.RadosUser, defaultRBDUser)
		orDefault(&s.RBD.Keyring, defaultRBDKeyring)
	}
	defaultAzureDisk(s.AzureDisk)
	if s.ScaleIO != nil {
		orDefault(&s.ScaleIO.StorageMode, defaultScaleIOStorage)
		orDefault(&s.ScaleIO.FSType, defaultScaleIOFS)
	}
}

func defaultAzureDisk(d *corev1.AzureDiskVolumeSource) {
	if d == nil {
		return
	}
	setDefault(&d.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	setDefault(&d.Kind, corev1.AzureSharedBlobDisk)
	setDefault(&d.FSType, defaultAzureDiskFSType)
	setDefault(&d.ReadOnly, false)
}

// requestLimits makes each limit a request where no request was made.
func requestLimits(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

// requestPodLimits makes requests of the pod as a whole: the sum that its containers
// have together or, where none of them has any, its limit.
func requestPodLimits(spec *corev1.PodSpec) {
	r := spec.Resources
	if len(r.Requests) == 0 && len(r.Limits) == 0 {
		return
	}
	sum := Requests(spec)
	requests := maps.Clone(r.Requests)
	if requests == nil {
		requests = corev1.ResourceList{}
	}
	for name, q := range sum {
		if _, ok := requests[name]; !ok && forWholePod(name) {
			requests[name] = q
		}
	}
	for name, limit := range r.Limits {
		if _, ok := requests[name]; !ok && forWholePod(name) {
			requests[name] = limit.DeepCopy()
		}
	}
	if len(requests) > len(r.Requests) {
		r.Requests = requests
	}
}

// forWholePod says which resources can be asked for by the pod as a whole.
func forWholePod(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || isHugePages(name)
}

// Requests returns the requests of a pod's containers together, init containers included: these
// run one after the other before the rest, except sidecars, which go on running beside it
// (restartPolicy Always).
func Requests(spec *corev1.PodSpec) corev1.ResourceList {
	sum, beside, peak := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range spec.Containers {
		add(sum, spec.Containers[i].Resources.Requests)
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if RunsBeside(c) {
			add(beside, c.Resources.Requests)
			raise(peak, beside)
			continue
		}
		now := corev1.ResourceList{}
		add(now, beside)
		add(now, c.Resources.Requests)
		raise(peak, now)
	}
	add(sum, beside)
	raise(sum, peak)
	return sum
}

// RunsBeside says whether an init container goes on running beside the
// containers of its pod (a sidecar).
func RunsBeside(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func add(sum, more corev1.ResourceList) {
	for name, q := range more {
		total := sum[name].DeepCopy()
		total.Add(q)
		sum[name] = total
	}
}

func raise(most, other corev1.ResourceList) {
	for name, q := range other {
		if m, ok := most[name]; !ok || m.Cmp(q) < 0 {
			most[name] = q.DeepCopy()
		}
	}
}

// RoundUp brings quantities to the finest unit that the API knows, a thousandth. It does not write
// to a list that has been rounded.
func RoundUp(list corev1.ResourceList) {
	for name, q := range list {
		if rounded := q.DeepCopy(); !rounded.RoundUp(resource.Milli) {
			list[name] = rounded
		}
	}
}

// pullPolicy is Always for images that may change under their name: those with
// the tag "latest", given or meant. A name that cannot be parsed has no tag.
func pullPolicy(image string) corev1.PullPolicy {
	name, _, digest := strings.Cut(image, "@")
	tag := ""
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		tag = name[i+1:]
	}
	if (tag == "latest" || tag == "" && !digest) && imageName().MatchString(image) && !isDigest(image) && pathLength(strings.TrimSuffix(name, ":"+tag)) <= longestPath {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// longestPath is the largest number of bytes of the name of a repository without its registry.
const longestPath = 255

// isDigest reports whether s is a sha256 digest in hexadecimal digits, which is not the name of an image.
func isDigest(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// pathLength returns the length of the name of a repository without its registry, with the "library" of Docker Hub.
func pathLength(name string) int {
	first, rest, found := strings.Cut(name, "/")
	switch {
	case !found:
		return len("library/") + len(name)
	case first == "localhost" || strings.ContainsAny(first, ".:") || strings.ToLower(first) != first:
		return len(rest)
	}
	return len(name)
}

// imageName returns the form of the names of images, that of the module distribution/reference.
var imageName = sync.OnceValue(func() *regexp.Regexp {
	const (
		part   = `[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?`
		domain = `(?:` + part + `(?:\.` + part + `)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?`
		path   = `[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*`
		digest = `[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}`
	)
	return regexp.MustCompile(`^(?:` + domain + `/)?` + path + `(?:/` + path + `)*(?::\w[\w.-]{0,127})?(?:@` + digest + `)?$`)
})

// containers yields the init containers and containers of a spec, in place.
func containers(spec *corev1.PodSpec) func(yield func(*corev1.Container) bool) {
	return func(yield func(*corev1.Container) bool) {
		for i := range spec.InitContainers {
			if !yield(&spec.InitContainers[i]) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(&spec.Containers[i]) {
				return
			}
		}
	}
}

// orDefault and setDefault write only where nothing is: a spec that has been
// defaulted may be read by others.
func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero && value != zero {
		*field = value
	}
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
