package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/manifest"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
)

type debugging struct {
	*session.Globals
	image, pullPolicy        string
	container, target        string
	copyTo                   string
	setImages, env           map[string]string
	argsOnly, attach         bool
	replace, sameNode, share bool
	stdin, tty, quiet        bool
	profileName, customFile  string
	keep                     kept

	attachChanged, shareChanged bool
	args                        []string
	profile                     profile
	custom                      *corev1.Container // nil without --custom
}

// Debug returns the verb debug.
func Debug(g *session.Globals) *cobra.Command {
	d := &debugging{Globals: g}
	cmd := &cobra.Command{
		Use:   "debug POD|node/NAME --image=IMAGE [-it] [-- COMMAND [ARGUMENT…]]",
		Short: "Debug a pod or a node with another container",
		Long: "Add an ephemeral container to a running pod, or with --copy-to create a copy of the pod with another container or with\n" +
			"changed ones, or for node/NAME create a pod in the namespaces of the node, with its files below /host.",
		Example: "  sampan debug web -it --image=busybox --target=nginx\n  sampan debug web -it --image=busybox --copy-to=web-debug --share-processes\n" +
			"  sampan debug web --copy-to=web-debug --set-image='*=busybox'\n  sampan debug node/n1 -it --image=busybox",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.complete(cmd, args); err != nil {
				return exit.Usage(cmd.CommandPath(), err)
			}
			return d.run(cmd.Context(), d.names(cmd, args)[0])
		},
	}
	f := cmd.Flags()
	f.BoolVar(&d.argsOnly, "arguments-only", false, "pass everything after -- to the container as arguments instead of its command")
	f.BoolVar(&d.attach, "attach", false, "wait for the container to start, and attach to it (default true with -i)")
	f.StringVarP(&d.container, "container", "c", "", "name of the debug container, or with --copy-to of the container to change")
	f.StringVar(&d.copyTo, "copy-to", "", "create a copy of the pod with this name")
	f.BoolVar(&d.replace, "replace", false, "with --copy-to, delete the original pod")
	f.StringToStringVar(&d.env, "env", nil, "environment variables of the container, as NAME=VALUE")
	f.StringVar(&d.image, "image", "", "image of the debug container")
	f.StringVar(&d.pullPolicy, "image-pull-policy", "", "image pull policy: Always, IfNotPresent or Never (default: the server's)")
	f.BoolVar(&d.keep.labels, "keep-labels", false, "with --copy-to, keep the labels of the pod")
	f.BoolVar(&d.keep.annotations, "keep-annotations", false, "with --copy-to, keep the annotations of the pod")
	f.BoolVar(&d.keep.liveness, "keep-liveness", false, "with --copy-to, keep the liveness probes")
	f.BoolVar(&d.keep.readiness, "keep-readiness", false, "with --copy-to, keep the readiness probes")
	f.BoolVar(&d.keep.startup, "keep-startup", false, "with --copy-to, keep the startup probes")
	f.BoolVar(&d.keep.initContainers, "keep-init-containers", true, "with --copy-to, keep the init containers")
	f.StringToStringVar(&d.setImages, "set-image", nil, "with --copy-to, change images of containers, as NAME=IMAGE; the name * means all")
	f.BoolVarP(&d.stdin, "stdin", "i", false, "keep the standard input of the container open")
	f.BoolVarP(&d.tty, "tty", "t", false, "allocate a terminal for the container")
	f.BoolVarP(&d.quiet, "quiet", "q", false, "print only the output of the container")
	f.BoolVar(&d.sameNode, "same-node", false, "with --copy-to, run the copy on the same node")
	f.BoolVar(&d.share, "share-processes", true, "with --copy-to, let the containers of the copy share a process namespace")
	f.StringVar(&d.target, "target", "", "let the ephemeral container see the processes of this container")
	f.StringVar(&d.profileName, "profile", "general", "what the debug container may do: general, baseline, restricted, netadmin or sysadmin")
	f.StringVar(&d.customFile, "custom", "", "JSON or YAML file with parts of a container that change the profile")
	return cmd
}

// names returns the arguments before --.
func (d *debugging) names(cmd *cobra.Command, args []string) []string {
	if at := cmd.ArgsLenAtDash(); at >= 0 {
		return args[:at]
	}
	return args
}

// complete reads the command line. Its errors are kubectl's.
func (d *debugging) complete(cmd *cobra.Command, args []string) (err error) {
	names := d.names(cmd, args)
	d.args = args[len(names):]
	d.attachChanged, d.shareChanged = cmd.Flags().Changed("attach"), cmd.Flags().Changed("share-processes")
	if !d.attachChanged && d.stdin {
		d.attach = true
	}
	if err := d.check(); err != nil {
		return err
	}
	if len(names) != 1 {
		return errors.New("exactly one NAME is required for debug")
	}
	var known bool
	if d.profile, known = profiles[d.profileName]; !known {
		return fmt.Errorf("unknown profile: %s", d.profileName)
	}
	if d.customFile == "" {
		return nil
	}
	data, err := os.ReadFile(d.customFile)
	if err != nil {
		return fmt.Errorf("must pass a container spec json file for custom profile: %w", err)
	}
	d.custom = &corev1.Container{}
	if err := yaml.UnmarshalStrict(data, d.custom); err != nil {
		return fmt.Errorf("%s does not contain a valid container spec: %w", d.customFile, err)
	}
	if c := d.custom; c.Name != "" || len(c.Command) > 0 || c.Image != "" || c.Lifecycle != nil || len(c.VolumeDevices) > 0 {
		return errors.New("name, command, image, lifecycle and volume devices are not modifiable via custom profile")
	}
	return nil
}

func (d *debugging) check() error {
	switch {
	case d.attach && d.attachChanged && d.image == "" && d.container == "":
		return errors.New("you must specify --container or create a new container using --image in order to attach.") //nolint:staticcheck // kubectl's words
	case d.copyTo != "" && d.image == "" && len(d.setImages) == 0 && len(d.args) == 0:
		return errors.New("you must specify --image, --set-image or command arguments.") //nolint:staticcheck // kubectl's words
	case d.copyTo != "" && len(d.args) > 0 && d.container == "" && d.image == "":
		return errors.New("you must specify an existing container or a new image when specifying args.") //nolint:staticcheck // kubectl's words
	case d.copyTo == "" && d.replace:
		return errors.New("--replace may only be used with --copy-to.") //nolint:staticcheck // kubectl's words
	case d.copyTo == "" && d.sameNode:
		return errors.New("--same-node may only be used with --copy-to.") //nolint:staticcheck // kubectl's words
	case d.copyTo == "" && len(d.setImages) > 0:
		return errors.New("--set-image may only be used with --copy-to.") //nolint:staticcheck // kubectl's words
	case d.copyTo == "" && d.image == "":
		return errors.New("you must specify --image when not using --copy-to.") //nolint:staticcheck // kubectl's words
	case d.target != "" && d.copyTo != "":
		return errors.New("--target is incompatible with --copy-to. Use --share-processes instead.") //nolint:staticcheck // kubectl's words
	case d.tty && !d.stdin:
		return errors.New("-i/--stdin is required for containers with -t/--tty=true")
	}
	if d.image != "" {
		if err := manifest.CheckImage(d.image); err != nil {
			return err
		}
	}
	for _, image := range d.setImages {
		if err := manifest.CheckImage(image); err != nil {
			return err
		}
	}
	switch corev1.PullPolicy(d.pullPolicy) {
	case corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever, "":
		return nil
	}
	return fmt.Errorf("invalid image pull policy: %s", d.pullPolicy)
}

func (d *debugging) notes() io.Writer {
	if d.quiet {
		return io.Discard
	}
	return d.Out
}

func (d *debugging) run(ctx context.Context, name string) error {
	s, err := d.Connect()
	if err != nil {
		return err
	}
	c, err := s.Typed()
	if err != nil {
		return err
	}
	pod, container, err := d.start(ctx, s, c, name)
	if err != nil || !d.attach || container == "" {
		return err
	}
	pod, err = untilPod(ctx, c, pod.Namespace, pod.Name, func(p *corev1.Pod) (bool, error) {
		state := statusOf(p, container)
		return state != nil && (state.State.Running != nil || state.State.Terminated != nil), nil
	})
	if err != nil {
		return err
	}
	k := &streaming{Streams: d.Streams, stdin: d.stdin, tty: d.tty, quiet: d.quiet}
	return k.ended(k.attachOrLog(ctx, s, c, pod, container))
}

// start makes the debug container, and returns its pod and its name, which is empty if only images were changed.
func (d *debugging) start(ctx context.Context, s *session.Session, c *client.REST, name string) (*corev1.Pod, string, error) {
	infos, err := s.Infos(ctx, session.Input{}, []string{typed(name)})
	if err != nil {
		return nil, "", err
	}
	info := infos[0]
	switch info.Mapping.GroupVersionResource {
	case client.Nodes.GroupVersionResource:
		if _, err := client.Nodes.Get(ctx, c, "", info.Name); err != nil {
			return nil, "", err
		}
		pod, err := d.nodePod(info.Name, s.Namespace)
		if err != nil {
			return nil, "", err
		}
		made, err := client.Pods.Create(ctx, c, pod)
		return made, pod.Spec.Containers[0].Name, err
	case client.Pods.GroupVersionResource:
	default:
		return nil, "", fmt.Errorf("%q not supported by debug", info.Mapping.Kind)
	}
	pod, err := client.Pods.Get(ctx, c, info.Namespace, info.Name)
	switch {
	case err != nil:
		return nil, "", err
	case d.copyTo != "":
		return d.copyPod(ctx, c, pod)
	}
	return d.addTo(ctx, c, pod)
}

// addTo adds an ephemeral container to a pod.
func (d *debugging) addTo(ctx context.Context, c *client.REST, pod *corev1.Pod) (*corev1.Pod, string, error) {
	if d.target != "" {
		_, _ = fmt.Fprintf(d.notes(), "Targeting container %q. If you don't see processes from this container it may be because the container runtime doesn't support this feature.\n", d.target)
	}
	added := d.newContainer(d.nameIn(pod))
	if err := d.finish(added, d.profile.container); err != nil {
		return nil, "", err
	}
	d.warn(pod, added)
	common := corev1.EphemeralContainerCommon(*added)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"ephemeralContainers": []corev1.EphemeralContainer{{EphemeralContainerCommon: common, TargetContainerName: d.target}},
	}})
	if err != nil {
		return nil, "", err
	}
	_, err = c.Patch(ctx, client.Pods.GroupVersionResource, pod.Namespace, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "ephemeralcontainers")
	return pod, added.Name, err
}

// newContainer returns a debug container without a profile.
func (d *debugging) newContainer(name string) *corev1.Container {
	c := &corev1.Container{Name: name, TerminationMessagePolicy: corev1.TerminationMessageReadFile}
	d.change(c)
	return c
}

// change sets the command line's fields of a container.
func (d *debugging) change(c *corev1.Container) {
	if len(d.args) > 0 && d.argsOnly {
		c.Args = d.args
	} else if len(d.args) > 0 {
		c.Command, c.Args = d.args, nil
	}
	if len(d.env) > 0 {
		c.Env = nil
		for _, name := range slices.Sorted(maps.Keys(d.env)) {
			c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: d.env[name]})
		}
	}
	if d.image != "" {
		c.Image = d.image
	}
	if d.pullPolicy != "" {
		c.ImagePullPolicy = corev1.PullPolicy(d.pullPolicy)
	}
	c.Stdin, c.TTY = d.stdin, d.tty
}

// finish applies a profile and the user's own to a container.
func (d *debugging) finish(c *corev1.Container, profile func(*corev1.Container)) error {
	profile(c)
	if d.custom == nil {
		return nil
	}
	d.custom.Name = c.Name
	own, err := json.Marshal(d.custom)
	if err != nil {
		return err
	}
	made, err := json.Marshal(c)
	if err != nil {
		return err
	}
	merged, err := strategicpatch.StrategicMergePatch(made, own, corev1.Container{})
	if err != nil {
		return err
	}
	*c = corev1.Container{}
	return json.Unmarshal(merged, c)
}

// warn warns of capabilities that have no effect.
func (d *debugging) warn(pod *corev1.Pod, c *corev1.Container) {
	user := func(id *int64) bool { return id != nil && *id != 0 }
	switch own := c.SecurityContext; {
	case pod.Spec.SecurityContext == nil || !user(pod.Spec.SecurityContext.RunAsUser) || own == nil:
	case own.RunAsUser != nil && *own.RunAsUser == 0:
	case own.Privileged != nil && *own.Privileged || own.Capabilities != nil && len(own.Capabilities.Add) > 0:
		_, _ = fmt.Fprintln(d.Err, `Warning: Non-root user is configured for the entire target Pod, and some capabilities granted by debug profile may not work. Please consider using "--custom" with a custom profile that specifies "securityContext.runAsUser: 0".`)
	}
}

// copyPod creates a copy of a pod, in which a container is added or changed.
func (d *debugging) copyPod(ctx context.Context, c *client.REST, pod *corev1.Pod) (*corev1.Pod, string, error) {
	made, name, err := d.copyOf(pod)
	if err != nil {
		return nil, "", err
	}
	if made, err = client.Pods.Create(ctx, c, made); err != nil {
		return nil, "", err
	}
	if d.replace {
		none := int64(0)
		err = c.Delete(ctx, client.Pods.GroupVersionResource, pod.Namespace, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &none})
	}
	return made, name, err
}

func (d *debugging) copyOf(pod *corev1.Pod) (*corev1.Pod, string, error) {
	made := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: d.copyTo, Namespace: pod.Namespace, Annotations: maps.Clone(pod.Annotations), Labels: maps.Clone(pod.Labels)},
		Spec:       *pod.Spec.DeepCopy(),
	}
	made.Spec.EphemeralContainers = nil
	if d.shareChanged {
		made.Spec.ShareProcessNamespace = &d.share
	}
	if !d.sameNode {
		made.Spec.NodeName = ""
	}
	for i := range made.Spec.Containers {
		c := &made.Spec.Containers[i]
		if image, ok := d.setImages[c.Name]; ok {
			c.Image = image
		} else if image, ok := d.setImages["*"]; ok {
			c.Image = image
		}
	}
	i := slices.IndexFunc(made.Spec.Containers, func(c corev1.Container) bool { return c.Name == d.container })
	if i < 0 {
		if d.image == "" {
			if len(d.setImages) > 0 {
				return made, "", nil
			}
			return nil, "", errors.New("you must specify image when creating new container")
		}
		made.Spec.Containers = append(made.Spec.Containers, corev1.Container{Name: d.nameIn(made), TerminationMessagePolicy: corev1.TerminationMessageReadFile})
		i = len(made.Spec.Containers) - 1
	}
	c := &made.Spec.Containers[i]
	d.change(c)
	if d.profile.copyKeeps {
		d.keep.drop(made)
	} else {
		made.Labels = nil
	}
	if d.profile.shares && made.Spec.ShareProcessNamespace == nil {
		made.Spec.ShareProcessNamespace = &d.share
	}
	err := d.finish(c, d.profile.container)
	d.warn(made, c)
	return made, c.Name, err
}

// nodePod returns a pod that debugs a node.
func (d *debugging) nodePod(node, namespace string) (*corev1.Pod, error) {
	name := "debugger"
	if d.container != "" {
		name = d.container
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("node-debugger-%s-%s", node, utilrand.String(suffixLength)), Namespace: namespace,
			Labels: map[string]string{"app.kubernetes.io/managed-by": "kubectl-debug"},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{*d.newContainer(name)}, NodeName: node, RestartPolicy: corev1.RestartPolicyNever,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	_, _ = fmt.Fprintf(d.notes(), "Creating debugging pod %s with container %s on node %s.\n", pod.Name, name, node)
	d.profile.onNode(pod)
	return pod, d.finish(&pod.Spec.Containers[0], d.profile.nodeContainer)
}

const suffixLength = 5

// nameIn returns the name of the debug container.
func (d *debugging) nameIn(pod *corev1.Pod) string {
	if d.container != "" {
		return d.container
	}
	taken := map[string]bool{}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		taken[c.Name] = true
	}
	for i := range pod.Spec.EphemeralContainers {
		taken[pod.Spec.EphemeralContainers[i].Name] = true
	}
	name := ""
	for name == "" || taken[name] {
		name = "debugger-" + utilrand.String(suffixLength)
	}
	_, _ = fmt.Fprintf(d.notes(), "Defaulting debug container name to %s.\n", name)
	return name
}
