package node

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

// ImageOptions says how a node pulls images and collects unused ones. The names of kubelet's configuration are in
// parentheses.
type ImageOptions struct {
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

// check returns the options with defaults.
func (o ImageOptions) check() (ImageOptions, error) {
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

// imageNode holds what images need of the node.
type imageNode struct {
	runtime criclient.Runtime
	rootDir string // see [Options.RootDir]
	// accounts are the service accounts of pods, for plug-ins.
	accounts credentials.Accounts
	// secret returns a secret that a pod refers to.
	secret func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// pods returns the pods of the node.
	pods func() []*corev1.Pod
	// changed is called when an image has been pulled.
	changed func()
	// event records an event about the node.
	event   func(kind, reason, format string, args ...any)
	metrics *metrics.Images
	log     *slog.Logger
}

// images makes images available to pods, and removes unused ones.
type images struct {
	opts    ImageOptions
	node    imageNode
	turns   *turns
	records *pullrecord.Records // nil: credentials are not verified; written before images are used
	files   []string            // with credentials of the node
	done    run.Bell            // rung when a pull has ended
	names   *imagename.Parser
}

// newImages returns the images of a node, without records yet.
func newImages(o ImageOptions, n imageNode) *images {
	m := &images{opts: o, node: n, turns: newTurns(o.ParallelPulls), done: run.NewBell(), names: imagename.New()}
	if n.rootDir == "" {
		return m
	}
	dirs := []string{filepath.Dir(n.rootDir)}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, ".docker"))
	}
	for _, dir := range append(dirs, "/.docker") {
		m.files = append(m.files, filepath.Join(dir, "config.json"))
	}
	return m
}

// open opens the records about pulled images.
func (m *images) open(ctx context.Context) error {
	if m.node.rootDir == "" {
		return nil
	}
	present, err := m.node.runtime.ListImages(ctx)
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
		Dir: filepath.Join(filepath.Dir(m.node.rootDir), "image_manager"), Policy: m.opts.Verification, Allow: m.opts.Allowed,
	}, ids)
	return err
}

// imageRequest is a pod that needs images.
type imageRequest struct {
	pod *corev1.Pod
	// sandbox returns the configuration of the pod's sandbox.
	sandbox func() *cri.PodSandboxConfig
	// yield gives back the slot in which the pod starts, and returns the function that takes it again.
	yield func() (resume func())
	// event records an event about the pod.
	event func(kind, reason, format string, args ...any)
	// pulled is called with the time in which an image was pulled.
	pulled func(from, to time.Time)
	log    *slog.Logger
}

// wantedImage is an image that a pod needs: that of a container, or of a volume.
type wantedImage struct {
	name   string
	policy corev1.PullPolicy
	event  func(kind, reason, format string, args ...any)
}

// imageFailure says why an image is not available, in the words of the status of a container.
type imageFailure struct {
	reason, message           string
	laterReason, laterMessage string // while the pull waits for its next attempt
	pulled                    string // the image that could not be pulled
	events                    []imageWarning
}

// imageWarning is an event that reports a failure.
type imageWarning struct{ reason, message string }

func failedImage(format string, args ...any) []imageWarning {
	return []imageWarning{{"Failed", fmt.Sprintf(format, args...)}}
}

// ensure makes sure that the runtime has an image, and that the pod may use it.
func (m *images) ensure(ctx context.Context, r *imageRequest, want wantedImage) (*cri.Image, *imageFailure) {
	known := metrics.Ensured{}
	defer func() { m.node.metrics.Needed(want.policy, known) }()
	ref, err := m.names.Parse(want.name)
	if err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: couldn't parse image name %q: %v", want.name, want.name, err)
		return nil, &imageFailure{
			reason: "InvalidImageName", message: message,
			events: append([]imageWarning{{"InspectFailed", message}}, failedImage("Error: InvalidImageName")...),
		}
	}
	secrets := sync.OnceValues(func() ([]credentials.Credential, error) {
		return m.credentials(ctx, r, want.name, repositoryOf(ref))
	})
	if want.policy != corev1.PullAlways {
		image, fail := m.presentImage(ctx, want, &known, secrets)
		if image != nil || fail != nil {
			return image, fail
		}
	}
	known.Must(true)
	found, err := secrets()
	if err != nil {
		message := err.Error()
		return nil, &imageFailure{
			reason: "ErrImagePull", message: message, pulled: want.name, events: failedImage("Error: %s", message),
			laterReason: "ImagePullBackOff", laterMessage: fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", want.name, message),
		}
	}
	image, fail := m.pullImage(ctx, r, want, found)
	if fail != nil {
		hint := m.presentHint(ctx, want, found)
		fail.message, fail.laterMessage = fail.message+hint, fail.laterMessage+hint
		if len(fail.events) > 0 {
			fail.events[0].message += hint
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
func (m *images) presentImage(ctx context.Context, want wantedImage, known *metrics.Ensured, secrets func() ([]credentials.Credential, error)) (*cri.Image, *imageFailure) {
	image, err := m.node.runtime.ImageStatus(ctx, want.name)
	if err != nil {
		message := fmt.Sprintf("Failed to inspect image %q: %s", want.name, criclient.Message(err))
		return nil, &imageFailure{reason: "ImageInspectError", message: message, events: []imageWarning{{"InspectFailed", message}}}
	}
	known.Found(image != nil)
	if image != nil {
		must, err := m.mustPull(want.name, image, secrets)
		if err != nil {
			return nil, &imageFailure{
				reason: "ErrImagePull", message: err.Error(), pulled: want.name, events: failedImage("Error: %v", err),
				laterReason: "ImagePullBackOff", laterMessage: fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %v", want.name, err),
			}
		}
		known.Must(must)
		if !must {
			want.event(corev1.EventTypeNormal, "Pulled", "Container image %q already present on machine and can be accessed by the pod", want.name)
			return image, nil
		}
	}
	if want.policy != corev1.PullNever {
		return nil, nil
	}
	// The message is the same for an image that the pod may not use: it does not reveal that the image is there.
	message := fmt.Sprintf("Container image %q is not present with pull policy of Never", want.name)
	return nil, &imageFailure{
		reason: "ErrImageNeverPull", message: message,
		events: append([]imageWarning{{"ErrImageNeverPull", message}}, failedImage("Error: ErrImageNeverPull")...),
	}
}

// mustPull reports whether an image that is there has to be pulled to find out whether the pod may use it.
func (m *images) mustPull(name string, image *cri.Image, secrets func() ([]credentials.Credential, error)) (bool, error) {
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
	m.node.metrics.Checks.WithLabelValues(result).Inc()
	return verdict == pullrecord.MustAuthenticate, err
}

// imported reports whether the runtime has an image by that name from an archive or from the program, and not from a
// registry. The record of its id may be that of a pull by another name.
func (m *images) imported(name string, image *cri.Image) bool {
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
func (m *images) credentials(ctx context.Context, r *imageRequest, image, repository string) ([]credentials.Credential, error) {
	limited, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	var secrets []*corev1.Secret
	var missing []string
	for _, ref := range r.pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		s, err := m.node.secret(limited, r.pod.Namespace, ref.Name)
		if err != nil {
			missing = append(missing, ref.Name)
			continue
		}
		secrets = append(secrets, s)
	}
	if len(missing) > 0 {
		r.event(corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", "))
	}
	keys, err := credentials.FromSecrets(secrets)
	if err != nil {
		return nil, err
	}
	provided, err := m.opts.Plugins.Lookup(ctx, image, repository, credentials.Of(r.pod), m.node.accounts)
	if err != nil && ctx.Err() == nil {
		r.event(corev1.EventTypeWarning, "FailedToRetrieveImagePullCredentials",
			"Unable to retrieve some image pull credentials: %v; attempting to pull the image may not succeed.", err)
	}
	return slices.Concat(keys.Lookup(repository), credentials.FromFiles(m.files).Lookup(repository), provided), nil
}

// pullImage pulls an image with the credentials that match, one after the other, and records which one worked.
func (m *images) pullImage(ctx context.Context, r *imageRequest, want wantedImage, found []credentials.Credential) (_ *cri.Image, fail *imageFailure) {
	records := m.records
	if records != nil {
		if err := records.Begin(want.name); err != nil {
			message := fmt.Sprintf("Failed to record image pull intent for container image %q: %v", want.name, err)
			return nil, pullFailure(want.name, "ErrImagePull", message, nil)
		}
		recorded := false
		defer func() {
			if !recorded && fail != nil {
				if err := records.Failed(want.name); err != nil {
					r.log.Warn("record of a failed pull not removed", "image", want.name, "err", err)
				}
			}
		}()
	}
	want.event(corev1.EventTypeNormal, "Pulling", "Pulling image %q", want.name)
	asked := time.Now()
	image, used, took, err := m.pullInTurn(ctx, r, want.name, found)
	waited := time.Since(asked)
	m.done.Ring() // unused images are collected: the pull may have filled the disk, or failed because it is full
	if err != nil {
		message := criclient.Message(err)
		reason, detail := pullReason(want.name, message)
		return nil, pullFailure(want.name, reason, detail, failedImage("Failed to pull image %q: %s", want.name, message))
	}
	if records != nil {
		access := pullrecord.Access{NodePodsAccessible: true}
		if used != nil {
			access = accessBy(*used)
		}
		if err := records.Pulled(want.name, image.GetId(), access); err != nil {
			r.log.Error("pulled image not recorded: the credentials of pods will be verified again", "image", want.name, "err", err)
		}
	}
	m.node.changed() // the status of the node lists the images
	want.event(corev1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		want.name, took.Truncate(time.Millisecond), waited.Truncate(time.Millisecond), image.GetSize())
	m.node.metrics.Pulled(image.GetSize(), waited)
	r.pulled(asked, asked.Add(waited))
	return image, nil
}

// presentHint returns a sentence about an image that could not be pulled though the node has it, such as an imported one with
// the tag latest. It is empty if the pod may not use that image: its presence is not revealed then.
func (m *images) presentHint(ctx context.Context, want wantedImage, found []credentials.Credential) string {
	if want.policy != corev1.PullAlways || ctx.Err() != nil || m.node.rootDir == "" { // a simulated runtime has every image
		return ""
	}
	image, err := m.node.runtime.ImageStatus(ctx, want.name)
	if err != nil || image == nil {
		return ""
	}
	must, err := m.mustPull(want.name, image, func() ([]credentials.Credential, error) { return found, nil })
	if err != nil || must {
		return ""
	}
	return ". The node has an image of this name, but imagePullPolicy is Always, which is the default for the tag latest and for images without a tag. To use the image of the node, set imagePullPolicy: IfNotPresent, or import the image under another tag"
}

// pullFailure is a failed pull, which is tried again later.
func pullFailure(image, reason, message string, events []imageWarning) *imageFailure {
	return &imageFailure{
		reason: reason, message: message, pulled: image, events: append(events, failedImage("Error: %s", reason)...),
		laterReason: "ImagePullBackOff", laterMessage: fmt.Sprintf("Back-off pulling image %q: %s: %s", image, reason, message),
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
func (m *images) pullInTurn(ctx context.Context, r *imageRequest, image string, found []credentials.Credential) (*cri.Image, *credentials.Credential, time.Duration, error) {
	defer r.yield()() // even if ctx is over: the caller frees the slot
	if err := m.turns.wait(ctx, r.pod.Namespace); err != nil {
		return nil, nil, 0, err
	}
	defer m.turns.done(r.pod.Namespace)
	began := time.Now()
	id, used, err := m.pullWith(ctx, image, r.sandbox(), found)
	if err != nil {
		return nil, nil, 0, err
	}
	status, err := m.node.runtime.ImageStatus(ctx, id)
	if err == nil && status == nil {
		err = errors.New("the runtime reported a successful pull and does not have the image")
	}
	return status, used, time.Since(began), err
}

// pullWith tries the credentials one after the other, or none if there are none.
func (m *images) pullWith(ctx context.Context, image string, sandbox *cri.PodSandboxConfig, found []credentials.Credential) (string, *credentials.Credential, error) {
	if len(found) == 0 {
		id, err := m.node.runtime.PullImage(ctx, image, nil, sandbox)
		return id, nil, err
	}
	var messages []string
	var last error
	for i := range found {
		id, err := m.node.runtime.PullImage(ctx, image, &cri.AuthConfig{Username: found[i].Username, Password: found[i].Password}, sandbox)
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

// ensureVolumes makes sure that the images are there that are volumes of a container, and returns their ids by volume.
func (m *images) ensureVolumes(ctx context.Context, r *imageRequest, c *corev1.Container) (map[string]string, *imageFailure) {
	ids := map[string]string{}
	var fail *imageFailure
	for i := range r.pod.Spec.Volumes {
		v := &r.pod.Spec.Volumes[i]
		if v.Image == nil || !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name }) {
			continue
		}
		image, f := m.ensure(ctx, r, wantedImage{v.Image.Reference, v.Image.PullPolicy, r.event})
		if f != nil {
			fail = f
			continue
		}
		ids[v.Name] = image.GetId()
	}
	return ids, fail
}

// volumeImages returns the references of the images that are volumes of a pod.
func volumeImages(pod *corev1.Pod) []string {
	set := map[string]bool{}
	for i := range pod.Spec.Volumes {
		if v := pod.Spec.Volumes[i].Image; v != nil {
			set[v.Reference] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}
