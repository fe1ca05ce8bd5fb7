package node_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/node/volumes"
	"github.com/sampan-io/sampan/simulation/simulated"
)

// pullingRuntime is a simulated runtime whose images have to be pulled. Images with "private" in their name need the
// password "right", those with "missing" do not exist, and those with "slow" wait until they are released.
type pullingRuntime struct {
	*simulated.Runtime
	release chan struct{}

	mu    sync.Mutex
	there map[string]bool // guarded by mu
	pulls []string        // guarded by mu; image and user
}

func newPullingRuntime(t *testing.T) *pullingRuntime {
	t.Helper()
	rt, err := simulated.New(simulated.Options{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}})
	if err != nil {
		t.Fatal(err)
	}
	return &pullingRuntime{Runtime: rt, release: make(chan struct{}), there: map[string]bool{}}
}

func (r *pullingRuntime) ImageStatus(ctx context.Context, name string) (*cri.Image, error) {
	r.mu.Lock()
	there := r.there[name]
	r.mu.Unlock()
	imported, is := strings.CutPrefix(name, "archive.example/")
	switch {
	case is: // the image of the rest of the name, imported by this one
		image, err := r.Runtime.ImageStatus(ctx, imported)
		image.Spec = &cri.ImageSpec{Annotations: map[string]string{"sampan.dev/imported-repositories": "archive.example/r.example/private,z.example/x"}}
		return image, err
	case !there && !strings.HasPrefix(name, "sha256:"):
		return nil, nil // as the interface says
	}
	return r.Runtime.ImageStatus(ctx, name)
}

func (r *pullingRuntime) PullImage(ctx context.Context, name string, auth *cri.AuthConfig, pod *cri.PodSandboxConfig) (string, error) {
	r.mu.Lock()
	r.pulls = append(r.pulls, strings.TrimSpace(name+" "+auth.GetUsername()))
	r.mu.Unlock()
	switch {
	case strings.Contains(name, "missing"), strings.HasPrefix(name, "sha256:"):
		return "", status.Error(codes.NotFound, "not found")
	case strings.Contains(name, "down"):
		return "", status.Error(codes.Unknown, "RegistryUnavailable: no route")
	case strings.Contains(name, "private") && auth.GetPassword() != "right":
		return "", status.Error(codes.PermissionDenied, "access denied")
	case strings.Contains(name, "slow"):
		select {
		case <-r.release:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	r.mu.Lock()
	r.there[name] = true
	r.mu.Unlock()
	return r.Runtime.PullImage(ctx, name, auth, pod)
}

func (r *pullingRuntime) taken() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.pulls
	r.pulls = nil
	return list
}

func pullSecret(name, user, password string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{"r.example":{"username":%q,"password":%q}}}`, user, password)},
	}
}

func imagePod(name, image string, policy corev1.PullPolicy, secrets ...string) *corev1.Pod {
	return webPod(name, func(p *corev1.Pod) {
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = image, policy
		for _, s := range secrets {
			p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
		}
	})
}

// inPullingBubble runs f with an agent whose runtime has to pull images.
func inPullingBubble(t *testing.T, f func(r *rig, rt *pullingRuntime), objs ...client.Object) {
	t.Helper()
	root := t.TempDir() + "/pods"
	t.Cleanup(func() {
		if err := volumes.Clean(root); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("HOME", t.TempDir()) // no credentials of this machine
	synctest.Test(t, func(t *testing.T) {
		r, rt := newRig(t, objs...), newPullingRuntime(t)
		rt.release = make(chan struct{})
		r.opts.Runtime, r.opts.RootDir = rt, root
		stop := r.start()
		<-r.node.Ready()
		f(r, rt)
		stop()
	})
}

func (r *rig) messages(pod string) (list []string) {
	for _, e := range r.events() {
		if e.InvolvedObject.Name == pod {
			list = append(list, e.Reason+": "+e.Message)
		}
	}
	return list
}

func TestPrivateImageIsForPodsWithItsSecret(t *testing.T) {
	const image = "r.example/private:1"
	inPullingBubble(t, func(r *rig, rt *pullingRuntime) {
		r.create(imagePod("owner", image, corev1.PullIfNotPresent, "wrong", "right"))
		r.await("owner", "ready", isReady)
		if got := rt.taken(); !slices.Equal(got, []string{image + " a", image + " b"}) {
			t.Errorf("pulls %q", got)
		}
		r.create(imagePod("second", image, corev1.PullIfNotPresent, "right"))
		r.await("second", "ready", isReady)
		if got := rt.taken(); len(got) > 0 {
			t.Errorf("a pod with the secret pulls %q", got)
		}
		r.create(imagePod("thief", image, corev1.PullIfNotPresent))
		r.await("thief", "refused", waits("ErrImagePull"))
		if got := rt.taken(); !slices.Equal(got, []string{image}) {
			t.Errorf("a pod without the secret pulls %q", got)
		}
		r.create(imagePod("never", image, corev1.PullNever))
		r.await("never", "refused", waits("ErrImageNeverPull"))
		// The id of an image is no way around its secret.
		there, err := rt.Runtime.ImageStatus(t.Context(), image)
		if err != nil {
			t.Fatal(err)
		}
		r.create(imagePod("by-id", there.GetId(), corev1.PullIfNotPresent))
		r.await("by-id", "refused", waits("ErrImagePull"))
		if got := rt.taken(); !slices.Equal(got, []string{there.GetId()}) {
			t.Errorf("a pod that names the id pulls %q", got)
		}
		r.create(imagePod("always", image, corev1.PullAlways, "right"))
		r.await("always", "ready", isReady)
		if got := rt.taken(); !slices.Equal(got, []string{image + " b"}) {
			t.Errorf("the policy Always pulls %q", got)
		}
	}, pullSecret("wrong", "a", "wrong"), pullSecret("right", "b", "right"))
}

// TestImportedImageNeedsNoSecret has an image that was pulled by one name and imported by another.
func TestImportedImageNeedsNoSecret(t *testing.T) {
	const pulled = "r.example/private:1"
	inPullingBubble(t, func(r *rig, rt *pullingRuntime) {
		r.create(imagePod("owner", pulled, corev1.PullIfNotPresent, "right"))
		r.await("owner", "ready", isReady)
		rt.taken()
		for _, policy := range []corev1.PullPolicy{corev1.PullIfNotPresent, corev1.PullNever} {
			name := "any-" + strings.ToLower(string(policy))
			r.create(imagePod(name, "archive.example/"+pulled, policy))
			r.await(name, "ready", isReady)
		}
		if got := rt.taken(); len(got) > 0 {
			t.Errorf("pulls %q", got)
		}
		r.create(imagePod("thief", pulled, corev1.PullNever))
		r.await("thief", "refused", waits("ErrImageNeverPull"))
	}, pullSecret("right", "b", "right"))
}

func TestFailedPullBacksOff(t *testing.T) {
	inPullingBubble(t, func(r *rig, rt *pullingRuntime) {
		r.create(imagePod("web", "r.example/missing:1", corev1.PullIfNotPresent, "absent"))
		r.await("web", "failed", waits("ErrImagePull"))
		p := r.await("web", "backing off", waits("ImagePullBackOff"))
		const want = `Back-off pulling image "r.example/missing:1": ErrImagePull: not found`
		if got := p.Status.ContainerStatuses[0].State.Waiting.Message; got != want {
			t.Errorf("message %q", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := len(rt.taken()); n < 3 || n > 5 { // after 10, 20, 40 and 80 s, and looking for the missing secret in between
			t.Errorf("%d pulls in two minutes", n)
		}
		events := r.messages("web")
		for _, want := range []string{
			`Pulling: Pulling image "r.example/missing:1"`, `Failed: Failed to pull image "r.example/missing:1": not found`,
			`Failed: Error: ErrImagePull`, `BackOff: Back-off pulling image "r.example/missing:1"`, `Failed: Error: ImagePullBackOff`,
			`FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (absent); attempting to pull the image may not succeed.`,
		} {
			if !slices.Contains(events, want) {
				t.Errorf("no event %q in %q", want, events)
			}
		}
	})
}

// An imported image with the tag latest is on the node, and is pulled all the same: the message says so, unless the pod may
// not use the image.
func TestFailedPullOfPresentImage(t *testing.T) {
	inPullingBubble(t, func(r *rig, rt *pullingRuntime) {
		const hint = "The node has an image of this name, but imagePullPolicy is Always"
		rt.mu.Lock()
		rt.there["r.example/missing:latest"] = true
		rt.mu.Unlock()
		for name, image := range map[string]string{"there": "r.example/missing:latest", "absent": "r.example/missing:other"} {
			r.create(imagePod(name, image, corev1.PullAlways))
			p := r.await(name, "failed", waits("ErrImagePull"))
			message := p.Status.ContainerStatuses[0].State.Waiting.Message
			synctest.Wait()
			event := slices.ContainsFunc(r.messages(name), func(m string) bool {
				return strings.HasPrefix(m, "Failed: Failed to pull image") && strings.Contains(m, hint)
			})
			if want := name == "there"; event != want || strings.Contains(message, hint) != want {
				t.Errorf("%s: the event has the hint: %v; the status is %q", name, event, message)
			}
		}
		r.create(imagePod("private", "r.example/private:latest", corev1.PullAlways, "right"))
		r.await("private", "ready", isReady)
		r.create(imagePod("other", "r.example/private:latest", corev1.PullAlways))
		if p := r.await("other", "failed", waits("ErrImagePull")); strings.Contains(p.Status.ContainerStatuses[0].State.Waiting.Message, hint) {
			t.Errorf("a pod without credentials is told that the image is there: %s", p.Status.ContainerStatuses[0].State.Waiting.Message)
		}
	}, pullSecret("right", "b", "right"))
}

func TestRuntimeChoosesTheReasonOfAFailedPull(t *testing.T) {
	inPullingBubble(t, func(r *rig, _ *pullingRuntime) {
		r.create(imagePod("web", "r.example/down:1", corev1.PullIfNotPresent))
		p := r.await("web", "failed", waits("RegistryUnavailable"))
		const want = "image pull failed for r.example/down:1 because the registry is unavailable: no route"
		if got := p.Status.ContainerStatuses[0].State.Waiting.Message; got != want {
			t.Errorf("message %q", got)
		}
	})
}

// TestSlowPullsHoldNobodyUp pulls more images at the same time than pods may start or images may be pulled.
func TestSlowPullsHoldNobodyUp(t *testing.T) {
	inPullingBubble(t, func(r *rig, rt *pullingRuntime) {
		rt.mu.Lock()
		rt.there["r.example/present:1"] = true
		rt.mu.Unlock()
		const many = 15
		for i := range many {
			r.create(imagePod(fmt.Sprint("slow-", i), fmt.Sprint("r.example/slow:", i), corev1.PullIfNotPresent))
		}
		synctest.Wait()
		if n := len(rt.taken()); n != 3 {
			t.Errorf("%d of 5 pulls at a time are for one namespace", n)
		}
		if _, err := client.Namespaces.Create(t.Context(), r.api, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}); err != nil {
			t.Fatal(err)
		}
		other := imagePod("other", "r.example/other:1", corev1.PullIfNotPresent)
		other.Namespace = "other"
		r.create(other)
		synctest.Wait()
		if got := rt.taken(); !slices.Equal(got, []string{"r.example/other:1"}) {
			t.Errorf("pulls %q, want that of the other namespace", got)
		}
		r.create(imagePod("web", "r.example/present:1", corev1.PullIfNotPresent))
		r.await("web", "ready", isReady)
		if err := client.Pods.Delete(t.Context(), r.api, "default", "slow-0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.await("slow-0", "gone", gone)
		close(rt.release)
		for i := 1; i < many; i++ {
			r.await(fmt.Sprint("slow-", i), "ready", isReady)
		}
	})
}
