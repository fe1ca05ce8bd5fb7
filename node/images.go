package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// image makes sure that the runtime has the container's image, as its pull policy
// says.
func (w *worker) image(ctx context.Context, o order) (*cri.Image, *startError) {
	c := o.container
	if _, err := name.ParseReference(c.Image, name.WeakValidation); err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: couldn't parse image name %q: invalid reference format", c.Image, c.Image)
		return nil, &startError{
			reason: "InvalidImageName", message: message,
			events: append([]warning{{"InspectFailed", message}}, failed("Error: InvalidImageName")...),
		}
	}
	image, err := w.n.opts.Runtime.ImageStatus(ctx, c.Image)
	if err != nil {
		message := fmt.Sprintf("Failed to inspect image %q: %s", c.Image, sentence(err))
		return nil, &startError{reason: "ImageInspectError", message: message, events: []warning{{"InspectFailed", message}}}
	}
	if image != nil && c.ImagePullPolicy != corev1.PullAlways {
		w.containerEvent(c.Name, corev1.EventTypeNormal, "Pulled", "Container image %q already present on machine and can be accessed by the pod", c.Image)
		return image, nil
	}
	if c.ImagePullPolicy == corev1.PullNever {
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", c.Image)
		return nil, &startError{
			reason: "ErrImageNeverPull", message: message,
			events: append([]warning{{"ErrImageNeverPull", message}}, failed("Error: ErrImageNeverPull")...),
		}
	}
	w.containerEvent(c.Name, corev1.EventTypeNormal, "Pulling", "Pulling image %q", c.Image)
	began := time.Now()
	ref, err := w.n.opts.Runtime.PullImage(ctx, c.Image, nil, w.n.sandboxConfig(o.pod, int32(o.sandbox.Attempt)))
	if err == nil {
		image, err = w.n.opts.Runtime.ImageStatus(ctx, ref)
	}
	if err == nil && image == nil {
		err = errors.New("the runtime reported a successful pull and does not have the image")
	}
	if err != nil {
		return nil, &startError{
			reason: "ErrImagePull", message: sentence(err), pulled: true,
			events:      append(failed("Failed to pull image %q: %s", c.Image, sentence(err)), failed("Error: ErrImagePull")...),
			laterReason: "ImagePullBackOff", laterMessage: fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", c.Image, sentence(err)),
		}
	}
	took := time.Since(began).Round(time.Millisecond)
	w.containerEvent(c.Name, corev1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.", c.Image, took, took, image.GetSize())
	return image, nil
}

// sentence returns the message of a runtime's error, without the prefix that gRPC adds.
func sentence(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}
