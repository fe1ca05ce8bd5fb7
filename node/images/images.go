package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/names"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/credentials"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/imagename"
	"github.com/sampan-io/sampan/node/metrics"
	"github.com/sampan-io/sampan/node/pullrecord"
)

// Options says how a node pulls images and collects unused ones. The names of kubelet's configuration are in
// parentheses.
type Options struct {
	// ParallelPulls is how many images are pulled at a time (maxParallelImagePulls); 1 pulls one after the other
	// (serializeImagePulls), 0 means 5. Pods of one namespace get at most half of them, rounded up.
	ParallelPulls int
	// Plugins are the credential provider plug-ins; nil means none.
	Plugins *credentials.Plugins
	// Verification and Allowed say for which images on the node the credentials of pods are verified
	// (imagePullCredentialsVerificationPolicy, preloadedImagesVerificationAllowlist). Nothing is verified without RootDir.
	Verification pullrecord.Policy
	Allowed      []string
	// Collect says which unused images are removed.
	Collect CollectOptions
}

const defaultParallelPulls = 5

// Check returns the options with defaults.
func (o Options) Check() (Options, error) {
	var errs []error
	if o.ParallelPulls < 0 {
		errs = append(errs, fmt.Errorf("node: Options.Images.ParallelPulls must be >= 0, got %d", o.ParallelPulls))
	}
	o.ParallelPulls = cmp.Or(max(0, o.ParallelPulls), defaultParallelPulls)
	var err error
	if o.Collect, err = o.Collect.check(); err != nil {
		errs = append(errs, fmt.Errorf("node: Options.Images.Collect: %w", err))
	}
	return o, errors.Join(errs...)
}

// Node holds what images need of the node.
type Node struct {
	Runtime criclient.Runtime
	RootDir string // of the agent; empty: the runtime is a simulated one
	// Accounts are the service accounts of pods, for plug-ins.
	Accounts credentials.Accounts
	// Secret returns a secret that a pod refers to.
	Secret func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Pods returns the pods of the node.
	Pods func() []*corev1.Pod
	// Changed is called when an image has been pulled.
	Changed func()
	// Event records an event about the node.
	Event   func(kind, reason, format string, args ...any)
	Metrics *metrics.Images
	Log     *slog.Logger
}

// Manager makes images available to pods, and removes unused ones.
type Manager struct {
	opts    Options
	node    Node
	queue   *pullQueue
	records *pullrecord.Records // nil: credentials are not verified; written before images are used
	files   []string            // with credentials of the node
	done    run.Bell            // rung when a pull has ended
	names   *imagename.Parser
}

// New returns the images of a node, without records yet.
func New(o Options, n Node) *Manager {
	m := &Manager{opts: o, node: n, queue: newPullQueue(o.ParallelPulls), done: run.NewBell(), names: imagename.New()}
	if n.RootDir == "" {
		return m
	}
	dirs := []string{filepath.Dir(n.RootDir)}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, ".docker"))
	}
	for _, dir := range append(dirs, "/.docker") {
		m.files = append(m.files, filepath.Join(dir, "config.json"))
	}
	return m
}

// Open opens the records about pulled images.
func (m *Manager) Open(ctx context.Context) error {
	if m.node.RootDir == "" {
		return nil
	}
	present, err := m.node.Runtime.ListImages(ctx)
	if err != nil {
		return fmt.Errorf("listing images: %w", err)
	}
	ids := map[string]string{}
	for _, i := range present {
		for _, name := range slices.Concat(i.GetRepoTags(), i.GetRepoDigests()) {
			ids[name] = i.GetId()
		}
	}
	m.records, err = pullrecord.Open(pullrecord.Options{
		Dir: filepath.Join(filepath.Dir(m.node.RootDir), "image_manager"), Policy: m.opts.Verification, Allow: m.opts.Allowed,
	}, ids)
	return err
}

// RecordCounts returns how many records there are of pulls that have begun, and of images that were pulled; ok is false if credentials
// are not verified, which needs no records.
func (m *Manager) RecordCounts() (pulling, pulled int, ok bool) {
	if m.records == nil {
		return 0, 0, false
	}
	pulling, pulled = m.records.Count()
	return pulling, pulled, true
}

// Request is a pod that needs images.
type Request struct {
	Pod *corev1.Pod
	// Sandbox returns the configuration of the pod's sandbox.
	Sandbox func() *cri.PodSandboxConfig
	// Yield gives back the slot in which the pod starts, and returns the function that takes it again.
	Yield func() (resume func())
	// Event records an event about the pod.
	Event func(kind, reason, format string, args ...any)
	// Pulled is called with the time in which an image was pulled.
	Pulled func(from, to time.Time)
	Log    *slog.Logger
}

// Image is an image that a pod needs: that of a container, or of a volume.
type Image struct {
	Name   string
	Policy corev1.PullPolicy
	Event  func(kind, reason, format string, args ...any)
}

// Failure says why an image is not available, in the words of the status of a container.
type Failure struct {
	Reason, Message           string
	LaterReason, LaterMessage string // while the pull waits for its next attempt
	Pulled                    string // the image that could not be pulled
	Events                    []Warning
}

// Warning is an event that reports a failure.
type Warning struct{ Reason, Message string }

func failed(format string, args ...any) []Warning {
	return []Warning{{"Failed", fmt.Sprintf(format, args...)}}
}

// Ensure makes sure that the runtime has an image, and that the pod may use it.
func (m *Manager) Ensure(ctx context.Context, r *Request, want Image) (*cri.Image, *Failure) {
	known := metrics.Ensured{}
	defer func() { m.node.Metrics.Needed(want.Policy, known) }()
	ref, err := m.names.Parse(want.Name)
	if err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: couldn't parse image name %q: %v", want.Name, want.Name, err)
		return nil, &Failure{
			Reason: "InvalidImageName", Message: message,
			Events: append([]Warning{{"InspectFailed", message}}, failed("Error: InvalidImageName")...),
		}
	}
	secrets := sync.OnceValues(func() ([]credentials.Credential, error) {
		return m.credentials(ctx, r, want.Name, repositoryOf(ref))
	})
	if want.Policy != corev1.PullAlways {
		image, fail := m.presentImage(ctx, want, &known, secrets)
		if image != nil || fail != nil {
			return image, fail
		}
	}
	known.Must(true)
	found, err := secrets()
	if err != nil {
		message := err.Error()
		return nil, &Failure{
			Reason: "ErrImagePull", Message: message, Pulled: want.Name, Events: failed("Error: %s", message),
			LaterReason: "ImagePullBackOff", LaterMessage: fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", want.Name, message),
		}
	}
	image, fail := m.pullImage(ctx, r, want, found)
	if fail != nil {
		hint := m.presentHint(ctx, want, found)
		fail.Message, fail.LaterMessage = fail.Message+hint, fail.LaterMessage+hint
		if len(fail.Events) > 0 {
			fail.Events[0].Message += hint
		}
	}
	return image, fail
}

// repositoryOf returns the repository of a reference with its registry, with the name docker.io for Docker's.
func repositoryOf(ref name.Reference) string {
	registry := ref.Context().RegistryStr()
	if registry == name.DefaultRegistry {
		registry = "docker.io"
	}
	return registry + "/" + ref.Context().RepositoryStr()
}

// presentImage returns the image if the runtime has it and the pod may use it. Neither an image nor an error means that it
// has to be pulled.
func (m *Manager) presentImage(ctx context.Context, want Image, known *metrics.Ensured, secrets func() ([]credentials.Credential, error)) (*cri.Image, *Failure) {
	image, err := m.node.Runtime.ImageStatus(ctx, want.Name)
	if err != nil {
		message := fmt.Sprintf("Failed to inspect image %q: %s", want.Name, criclient.Message(err))
		return nil, &Failure{Reason: "ImageInspectError", Message: message, Events: []Warning{{"InspectFailed", message}}}
	}
	known.Found(image != nil)
	if image != nil {
		must, err := m.mustPull(want.Name, image, secrets)
		if err != nil {
			return nil, &Failure{
				Reason: "ErrImagePull", Message: err.Error(), Pulled: want.Name, Events: failed("Error: %v", err),
				LaterReason: "ImagePullBackOff", LaterMessage: fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %v", want.Name, err),
			}
		}
		known.Must(must)
		if !must {
			want.Event(corev1.EventTypeNormal, "Pulled", "Container image %q already present on machine and can be accessed by the pod", want.Name)
			return image, nil
		}
	}
	if want.Policy != corev1.PullNever {
		return nil, nil
	}
	// The message is the same for an image that the pod may not use: it does not reveal that the image is there.
	message := fmt.Sprintf("Container image %q is not present with pull policy of Never", want.Name)
	return nil, &Failure{
		Reason: "ErrImageNeverPull", Message: message,
		Events: append([]Warning{{"ErrImageNeverPull", message}}, failed("Error: ErrImageNeverPull")...),
	}
}

// mustPull reports whether an image that is there has to be pulled to find out whether the pod may use it.
func (m *Manager) mustPull(name string, image *cri.Image, secrets func() ([]credentials.Credential, error)) (bool, error) {
	if m.records == nil {
		return false, nil
	}
	use := pullrecord.Use{Image: name, Ref: image.GetId(), Imported: m.imported(name, image)}
	verdict, err := m.records.Check(use, func() (pullrecord.Access, error) {
		found, err := secrets()
		var own pullrecord.Access
		for _, c := range found {
			one := accessBy(c)
			own.KubernetesSecrets = append(own.KubernetesSecrets, one.KubernetesSecrets...)
			own.KubernetesServiceAccounts = append(own.KubernetesServiceAccounts, one.KubernetesServiceAccounts...)
		}
		return own, err
	})
	result := string(verdict)
	if err != nil {
		result = "error"
	}
	m.node.Metrics.Checks.WithLabelValues(result).Inc()
	return verdict == pullrecord.MustAuthenticate, err
}

// imported reports whether the runtime has an image by that name from an archive or from the program, and not from a
// registry. The record of its id may be that of a pull by another name.
func (m *Manager) imported(name string, image *cri.Image) bool {
	all := image.GetSpec().GetAnnotations()[names.ImportedRepositories]
	if all == "" {
		return false
	}
	ref, err := m.names.Parse(name)
	return err == nil && slices.Contains(strings.Split(all, ","), repositoryOf(ref))
}

// accessBy returns the access that a credential gives.
func accessBy(c credentials.Credential) pullrecord.Access {
	switch {
	case c.Secret != credentials.Source{}:
		return pullrecord.Access{KubernetesSecrets: []pullrecord.Secret{{
			UID: c.Secret.UID, Namespace: c.Secret.Namespace, Name: c.Secret.Name, CredentialHash: c.Hash,
		}}}
	case c.ServiceAccount != credentials.Source{}:
		return pullrecord.Access{KubernetesServiceAccounts: []pullrecord.ServiceAccount{pullrecord.ServiceAccount(c.ServiceAccount)}}
	}
	return pullrecord.Access{NodePodsAccessible: true}
}

// lookupLimit is how long a pull waits for the first answer about a secret.
const lookupLimit = 10 * time.Second

// credentials returns the credentials for an image: those of the pod's secrets first, then those of the node.
func (m *Manager) credentials(ctx context.Context, r *Request, image, repository string) ([]credentials.Credential, error) {
	limited, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	var secrets []*corev1.Secret
	var missing []string
	for _, ref := range r.Pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		s, err := m.node.Secret(limited, r.Pod.Namespace, ref.Name)
		if err != nil {
			missing = append(missing, ref.Name)
			continue
		}
		secrets = append(secrets, s)
	}
	if len(missing) > 0 {
		r.Event(corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", "))
	}
	keys, err := credentials.FromSecrets(secrets)
	if err != nil {
		return nil, err
	}
	provided, err := m.opts.Plugins.Lookup(ctx, image, repository, credentials.Of(r.Pod), m.node.Accounts)
	if err != nil && ctx.Err() == nil {
		r.Event(corev1.EventTypeWarning, "FailedToRetrieveImagePullCredentials",
			"Unable to retrieve some image pull credentials: %v; attempting to pull the image may not succeed.", err)
	}
	return slices.Concat(keys.Lookup(repository), credentials.FromFiles(m.files).Lookup(repository), provided), nil
}

// pullImage pulls an image with the credentials that match, one after the other, and records which one worked.
func (m *Manager) pullImage(ctx context.Context, r *Request, want Image, found []credentials.Credential) (_ *cri.Image, fail *Failure) {
	records := m.records
	if records != nil {
		if err := records.Begin(want.Name); err != nil {
			message := fmt.Sprintf("Failed to record image pull intent for container image %q: %v", want.Name, err)
			return nil, pullFailure(want.Name, "ErrImagePull", message, nil)
		}
		recorded := false
		defer func() {
			if !recorded && fail != nil {
				if err := records.Failed(want.Name); err != nil {
					r.Log.Warn("record of a failed pull not removed", "image", want.Name, "err", err)
				}
			}
		}()
	}
	want.Event(corev1.EventTypeNormal, "Pulling", "Pulling image %q", want.Name)
	asked := time.Now()
	image, used, took, err := m.pullInTurn(ctx, r, want.Name, found)
	waited := time.Since(asked)
	m.done.Ring() // unused images are collected: the pull may have filled the disk, or failed because it is full
	if err != nil {
		message := criclient.Message(err)
		reason, detail := pullReason(want.Name, message)
		return nil, pullFailure(want.Name, reason, detail, failed("Failed to pull image %q: %s", want.Name, message))
	}
	if records != nil {
		access := pullrecord.Access{NodePodsAccessible: true}
		if used != nil {
			access = accessBy(*used)
		}
		if err := records.Pulled(want.Name, image.GetId(), access); err != nil {
			r.Log.Error("pulled image not recorded: the credentials of pods will be verified again", "image", want.Name, "err", err)
		}
	}
	m.node.Changed() // the status of the node lists the images
	want.Event(corev1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		want.Name, took.Truncate(time.Millisecond), waited.Truncate(time.Millisecond), image.GetSize())
	m.node.Metrics.Pulled(image.GetSize(), waited)
	r.Pulled(asked, asked.Add(waited))
	return image, nil
}

// presentHint returns a sentence about an image that could not be pulled though the node has it, such as an imported one with
// the tag latest. It is empty if the pod may not use that image: its presence is not revealed then.
func (m *Manager) presentHint(ctx context.Context, want Image, found []credentials.Credential) string {
	if want.Policy != corev1.PullAlways || ctx.Err() != nil || m.node.RootDir == "" { // a simulated runtime has every image
		return ""
	}
	image, err := m.node.Runtime.ImageStatus(ctx, want.Name)
	if err != nil || image == nil {
		return ""
	}
	must, err := m.mustPull(want.Name, image, func() ([]credentials.Credential, error) { return found, nil })
	if err != nil || must {
		return ""
	}
	return ". The node has an image of this name, but imagePullPolicy is Always, which is the default for the tag latest and for images without a tag. To use the image of the node, set imagePullPolicy: IfNotPresent, or import the image under another tag"
}

// pullFailure is a failed pull, which is tried again later.
func pullFailure(image, reason, message string, events []Warning) *Failure {
	return &Failure{
		Reason: reason, Message: message, Pulled: image, Events: append(events, failed("Error: %s", reason)...),
		LaterReason: "ImagePullBackOff", LaterMessage: fmt.Sprintf("Back-off pulling image %q: %s: %s", image, reason, message),
	}
}

// pullReason returns the reason and the message of a failed pull, which some runtimes choose with the beginning of their
// error (k8s.io/cri-api/pkg/errors).
func pullReason(image, message string) (reason, text string) {
	for _, known := range []struct{ reason, because string }{
		{"RegistryUnavailable", "the registry is unavailable"},
		{"SignatureValidationFailed", "the signature validation failed"},
	} {
		if rest, ok := strings.CutPrefix(message, known.reason); ok {
			return known.reason, fmt.Sprintf("image pull failed for %s because %s%s", image, known.because, rest)
		}
	}
	return "ErrImagePull", message
}

// pullInTurn waits for its turn among the pulls of the node, and pulls. Other pods may start meanwhile.
func (m *Manager) pullInTurn(ctx context.Context, r *Request, image string, found []credentials.Credential) (*cri.Image, *credentials.Credential, time.Duration, error) {
	defer r.Yield()() // even if ctx is over: the caller frees the slot
	if err := m.queue.wait(ctx, r.Pod.Namespace); err != nil {
		return nil, nil, 0, err
	}
	defer m.queue.done(r.Pod.Namespace)
	began := time.Now()
	id, used, err := m.pullWith(ctx, image, r.Sandbox(), found)
	if err != nil {
		return nil, nil, 0, err
	}
	status, err := m.node.Runtime.ImageStatus(ctx, id)
	if err == nil && status == nil {
		err = errors.New("the runtime reported a successful pull and does not have the image")
	}
	return status, used, time.Since(began), err
}

// pullWith tries the credentials one after the other, or none if there are none.
func (m *Manager) pullWith(ctx context.Context, image string, sandbox *cri.PodSandboxConfig, found []credentials.Credential) (string, *credentials.Credential, error) {
	if len(found) == 0 {
		id, err := m.node.Runtime.PullImage(ctx, image, nil, sandbox)
		return id, nil, err
	}
	var messages []string
	var last error
	for i := range found {
		id, err := m.node.Runtime.PullImage(ctx, image, &cri.AuthConfig{Username: found[i].Username, Password: found[i].Password}, sandbox)
		if err == nil {
			return id, &found[i], nil
		}
		last = err
		if text := criclient.Message(err); !slices.Contains(messages, text) {
			messages = append(messages, text)
		}
	}
	if len(messages) == 1 {
		return "", nil, last
	}
	return "", nil, fmt.Errorf("[%s]", strings.Join(messages, ", "))
}

// EnsureVolumes makes sure that the images are there that are volumes of a container, and returns their ids by volume.
func (m *Manager) EnsureVolumes(ctx context.Context, r *Request, c *corev1.Container) (map[string]string, *Failure) {
	ids := map[string]string{}
	var fail *Failure
	for i := range r.Pod.Spec.Volumes {
		v := &r.Pod.Spec.Volumes[i]
		if v.Image == nil || !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name }) {
			continue
		}
		image, f := m.Ensure(ctx, r, Image{v.Image.Reference, v.Image.PullPolicy, r.Event})
		if f != nil {
			fail = f
			continue
		}
		ids[v.Name] = image.GetId()
	}
	return ids, fail
}

// OfVolumes returns the references of the images that are volumes of a pod.
func OfVolumes(pod *corev1.Pod) []string {
	set := map[string]bool{}
	for i := range pod.Spec.Volumes {
		if v := pod.Spec.Volumes[i].Image; v != nil {
			set[v.Reference] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}
