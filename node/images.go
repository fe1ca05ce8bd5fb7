package node

import (
	"context"
	"errors"
	"fmt"
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

// pulls is what the workers share for pulling images.
type pulls struct {
	turns   *turns
	records *pullrecord.Records // nil: credentials are not verified
	files   []string            // with credentials of the node
	done    run.Bell            // rung when a pull has ended
	names   *imagename.Parser
}

// ended has unused images collected: the pull may have filled the disk, or failed because it is full.
func (p *pulls) ended() {
	p.done.Ring()
}

// newPulls returns the state for pulls, without records yet.
func newPulls(o Options) *pulls {
	p := &pulls{turns: newTurns(o.Images.ParallelPulls), done: run.NewBell(), names: imagename.New()}
	if o.RootDir == "" {
		return p
	}
	dirs := []string{filepath.Dir(o.RootDir)}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, ".docker"))
	}
	for _, dir := range append(dirs, "/.docker") {
		p.files = append(p.files, filepath.Join(dir, "config.json"))
	}
	return p
}

// openRecords opens the records about pulled images.
func (n *Node) openRecords(ctx context.Context) error {
	if n.opts.RootDir == "" {
		return nil
	}
	images, err := n.opts.Runtime.ListImages(ctx)
	if err != nil {
		return fmt.Errorf("listing images: %w", err)
	}
	present := map[string]string{}
	for _, i := range images {
		for _, name := range slices.Concat(i.GetRepoTags(), i.GetRepoDigests()) {
			present[name] = i.GetId()
		}
	}
	o := n.opts.Images
	n.pulls.records, err = pullrecord.Open(pullrecord.Options{
		Dir: filepath.Join(filepath.Dir(n.opts.RootDir), "image_manager"), Policy: o.Verification, Allow: o.Allowed,
	}, present)
	return err
}

// wantedImage is an image that a pod needs: that of a container, or of a volume.
type wantedImage struct {
	name   string
	policy corev1.PullPolicy
	event  func(kind, reason, format string, args ...any)
}

// image makes sure that the runtime has the container's image, as its pull policy says.
func (w *worker) image(ctx context.Context, o order) (*cri.Image, *startError) {
	c := o.container
	return w.ensureImage(ctx, o, wantedImage{c.Image, c.ImagePullPolicy, func(kind, reason, format string, args ...any) {
		w.containerEvent(c.Name, kind, reason, format, args...)
	}})
}

// ensureImage makes sure that the runtime has an image, and that the pod may use it.
func (w *worker) ensureImage(ctx context.Context, o order, want wantedImage) (*cri.Image, *startError) {
	known := metrics.Ensured{}
	defer func() { w.n.metrics.Images.Needed(want.policy, known) }()
	ref, err := w.n.pulls.names.Parse(want.name)
	if err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: couldn't parse image name %q: %v", want.name, want.name, err)
		return nil, &startError{
			reason: "InvalidImageName", message: message,
			events: append([]warning{{"InspectFailed", message}}, failed("Error: InvalidImageName")...),
		}
	}
	secrets := sync.OnceValues(func() ([]credentials.Credential, error) {
		return w.credentials(ctx, o.pod, want.name, repositoryOf(ref))
	})
	if want.policy != corev1.PullAlways {
		image, fail := w.presentImage(ctx, want, &known, secrets)
		if image != nil || fail != nil {
			return image, fail
		}
	}
	known.Must(true)
	found, err := secrets()
	if err != nil {
		message := err.Error()
		return nil, &startError{
			reason: "ErrImagePull", message: message, pulled: want.name, events: failed("Error: %s", message),
			laterReason: "ImagePullBackOff", laterMessage: fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", want.name, message),
		}
	}
	image, fail := w.pullImage(ctx, o, want, found)
	if fail != nil {
		hint := w.presentHint(ctx, want, found)
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
func (w *worker) presentImage(ctx context.Context, want wantedImage, known *metrics.Ensured, secrets func() ([]credentials.Credential, error)) (*cri.Image, *startError) {
	image, err := w.n.opts.Runtime.ImageStatus(ctx, want.name)
	if err != nil {
		message := fmt.Sprintf("Failed to inspect image %q: %s", want.name, criclient.Message(err))
		return nil, &startError{reason: "ImageInspectError", message: message, events: []warning{{"InspectFailed", message}}}
	}
	known.Found(image != nil)
	if image != nil {
		must, err := w.mustPull(want.name, image, secrets)
		if err != nil {
			return nil, &startError{
				reason: "ErrImagePull", message: err.Error(), pulled: want.name, events: failed("Error: %v", err),
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
	return nil, &startError{
		reason: "ErrImageNeverPull", message: message,
		events: append([]warning{{"ErrImageNeverPull", message}}, failed("Error: ErrImageNeverPull")...),
	}
}

// mustPull reports whether an image that is there has to be pulled to find out whether the pod may use it.
func (w *worker) mustPull(name string, image *cri.Image, secrets func() ([]credentials.Credential, error)) (bool, error) {
	if w.n.pulls.records == nil {
		return false, nil
	}
	use := pullrecord.Use{Image: name, Ref: image.GetId(), Imported: w.imported(name, image)}
	verdict, err := w.n.pulls.records.Check(use, func() (pullrecord.Access, error) {
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
	w.n.metrics.Images.Checks.WithLabelValues(result).Inc()
	return verdict == pullrecord.MustAuthenticate, err
}

// imported reports whether the runtime has an image by that name from an archive or from the program, and not from a
// registry. The record of its id may be that of a pull by another name.
func (w *worker) imported(name string, image *cri.Image) bool {
	all := image.GetSpec().GetAnnotations()[names.ImportedRepositories]
	if all == "" {
		return false
	}
	ref, err := w.n.pulls.names.Parse(name)
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

// credentials returns the credentials for an image: those of the pod's secrets first, then those of the node.
func (w *worker) credentials(ctx context.Context, pod *corev1.Pod, image, repository string) ([]credentials.Credential, error) {
	limited, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	var secrets []*corev1.Secret
	var missing []string
	for _, ref := range pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		s, err := objects{limited, w.n.objects}.Secret(pod.Namespace, ref.Name)
		if err != nil {
			missing = append(missing, ref.Name)
			continue
		}
		secrets = append(secrets, s)
	}
	if len(missing) > 0 {
		w.event(corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", "))
	}
	keys, err := credentials.FromSecrets(secrets)
	if err != nil {
		return nil, err
	}
	provided, err := w.n.opts.Images.Plugins.Lookup(ctx, image, repository, owner(pod), accounts{w.n.opts.Client})
	if err != nil && ctx.Err() == nil {
		w.event(corev1.EventTypeWarning, "FailedToRetrieveImagePullCredentials",
			"Unable to retrieve some image pull credentials: %v; attempting to pull the image may not succeed.", err)
	}
	return slices.Concat(keys.Lookup(repository), credentials.FromFiles(w.n.pulls.files).Lookup(repository), provided), nil
}

// pullImage pulls an image with the credentials that match, one after the other, and records which one worked.
func (w *worker) pullImage(ctx context.Context, o order, want wantedImage, found []credentials.Credential) (_ *cri.Image, fail *startError) {
	records := w.n.pulls.records
	if records != nil {
		if err := records.Begin(want.name); err != nil {
			message := fmt.Sprintf("Failed to record image pull intent for container image %q: %v", want.name, err)
			return nil, pullFailure(want.name, "ErrImagePull", message, nil)
		}
		recorded := false
		defer func() {
			if !recorded && fail != nil {
				if err := records.Failed(want.name); err != nil {
					w.log.Warn("record of a failed pull not removed", "image", want.name, "err", err)
				}
			}
		}()
	}
	want.event(corev1.EventTypeNormal, "Pulling", "Pulling image %q", want.name)
	asked := time.Now()
	image, used, took, err := w.pullInTurn(ctx, o, want.name, found)
	waited := time.Since(asked)
	w.n.pulls.ended()
	if err != nil {
		message := criclient.Message(err)
		reason, detail := pullReason(want.name, message)
		return nil, pullFailure(want.name, reason, detail, failed("Failed to pull image %q: %s", want.name, message))
	}
	if records != nil {
		access := pullrecord.Access{NodePodsAccessible: true}
		if used != nil {
			access = accessBy(*used)
		}
		if err := records.Pulled(want.name, image.GetId(), access); err != nil {
			w.log.Error("pulled image not recorded: the credentials of pods will be verified again", "image", want.name, "err", err)
		}
	}
	w.n.health.changed.Ring() // the status of the node lists the images
	want.event(corev1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		want.name, took.Truncate(time.Millisecond), waited.Truncate(time.Millisecond), image.GetSize())
	w.n.metrics.Images.Pulled(image.GetSize(), waited)
	w.post(func() { w.starting.Pulled(asked, asked.Add(waited)) })
	return image, nil
}

// presentHint returns a sentence about an image that could not be pulled though the node has it, such as an imported one with
// the tag latest. It is empty if the pod may not use that image: its presence is not revealed then.
func (w *worker) presentHint(ctx context.Context, want wantedImage, found []credentials.Credential) string {
	if want.policy != corev1.PullAlways || ctx.Err() != nil || w.n.opts.RootDir == "" { // a simulated runtime has every image
		return ""
	}
	image, err := w.n.opts.Runtime.ImageStatus(ctx, want.name)
	if err != nil || image == nil {
		return ""
	}
	must, err := w.mustPull(want.name, image, func() ([]credentials.Credential, error) { return found, nil })
	if err != nil || must {
		return ""
	}
	return ". The node has an image of this name, but imagePullPolicy is Always, which is the default for the tag latest and for images without a tag. To use the image of the node, set imagePullPolicy: IfNotPresent, or import the image under another tag"
}

// pullFailure is a failed pull, which is tried again later.
func pullFailure(image, reason, message string, events []warning) *startError {
	return &startError{
		reason: reason, message: message, pulled: image, events: append(events, failed("Error: %s", reason)...),
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
func (w *worker) pullInTurn(ctx context.Context, o order, image string, found []credentials.Credential) (*cri.Image, *credentials.Credential, time.Duration, error) {
	w.n.exit()
	defer func() { w.n.slots <- struct{}{} }() // even if ctx is over: the caller frees it
	if err := w.n.pulls.turns.wait(ctx, o.pod.Namespace); err != nil {
		return nil, nil, 0, err
	}
	defer w.n.pulls.turns.done(o.pod.Namespace)
	began := time.Now()
	sandbox := w.n.sandboxConfig(o.pod, int32(o.sandbox.Attempt))
	id, used, err := w.pullWith(ctx, image, sandbox, found)
	if err != nil {
		return nil, nil, 0, err
	}
	status, err := w.n.opts.Runtime.ImageStatus(ctx, id)
	if err == nil && status == nil {
		err = errors.New("the runtime reported a successful pull and does not have the image")
	}
	return status, used, time.Since(began), err
}

// pullWith tries the credentials one after the other, or none if there are none.
func (w *worker) pullWith(ctx context.Context, image string, sandbox *cri.PodSandboxConfig, found []credentials.Credential) (string, *credentials.Credential, error) {
	if len(found) == 0 {
		id, err := w.n.opts.Runtime.PullImage(ctx, image, nil, sandbox)
		return id, nil, err
	}
	var messages []string
	var last error
	for i := range found {
		id, err := w.n.opts.Runtime.PullImage(ctx, image, &cri.AuthConfig{Username: found[i].Username, Password: found[i].Password}, sandbox)
		if err == nil {
			return id, &found[i], nil
		}
		last = err
		if m := criclient.Message(err); !slices.Contains(messages, m) {
			messages = append(messages, m)
		}
	}
	if len(messages) == 1 {
		return "", nil, last
	}
	return "", nil, fmt.Errorf("[%s]", strings.Join(messages, ", "))
}

// imageVolumes makes sure that the images are there that are volumes of a container, and returns their ids by volume.
func (w *worker) imageVolumes(ctx context.Context, o order) (map[string]string, *startError) {
	ids := map[string]string{}
	var fail *startError
	for i := range o.pod.Spec.Volumes {
		v := &o.pod.Spec.Volumes[i]
		if v.Image == nil || !slices.ContainsFunc(o.container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name }) {
			continue
		}
		image, f := w.ensureImage(ctx, o, wantedImage{v.Image.Reference, v.Image.PullPolicy, w.event})
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
