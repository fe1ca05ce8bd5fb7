package pods

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
)

type forwarding struct {
	*session.Globals
	addresses []string
	patience  time.Duration
}

// PortForward returns the verb port-forward.
func PortForward(g *session.Globals) *cobra.Command {
	p := &forwarding{Globals: g}
	cmd := &cobra.Command{
		Use:   "port-forward POD|TYPE/NAME [LOCAL:]REMOTE…",
		Short: "Forward local ports to a pod",
		Long: "Listen on local ports, and forward connections to ports of a pod until interrupted. TYPE/NAME, such as deploy/NAME or\n" +
			"svc/NAME, selects one pod of that object; the ports of a service are its own. REMOTE is a number or the name of a port.\n" +
			"Without LOCAL the local port has the same number; with an empty LOCAL (:80) or 0 it is a free one.",
		Example: "  sampan port-forward web 8080:80\n  sampan port-forward svc/web 8443:https --address=0.0.0.0\n  sampan port-forward deploy/db :5432",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return exit.Usage(cmd.CommandPath(), errors.New("TYPE/NAME and list of ports are required for port-forward"))
			}
			return p.run(cmd.Context(), args[0], args[1:])
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&p.addresses, "address", []string{"localhost"}, "local addresses to listen on, separated by commas: IP addresses or localhost")
	f.DurationVar(&p.patience, "pod-running-timeout", time.Minute, "how long to wait until a pod is running")
	return cmd
}

func (p *forwarding) run(ctx context.Context, name string, ports []string) error {
	s, err := p.Connect()
	if err != nil {
		return err
	}
	c, err := s.Typed()
	if err != nil {
		return err
	}
	pods, err := podsNamed(ctx, s, c, []string{name}, false)
	if err != nil {
		return err
	}
	pod, err := p.running(ctx, c, pods[0], strings.Contains(name, "/"))
	if err != nil {
		return err
	}
	if pod.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("unable to forward port because pod is not running. Current status=%v", pod.Status.Phase)
	}
	svc, err := serviceNamed(ctx, s, c, name)
	if err != nil {
		return err
	}
	for i, text := range ports {
		if ports[i], err = mapping(text, svc, pod); err != nil {
			return err
		}
	}
	dialer, err := newDialer(c, pod)
	if err != nil {
		return err
	}
	// Done is ended with ctx: an interrupted port-forward has done its work.
	f, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, p.addresses, ports, make(chan struct{}), p.Out, p.Err)
	if err != nil {
		return err
	}
	if err := f.ForwardPorts(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// running waits for the pod of another object until it runs; a pod that was named is taken as it is.
func (p *forwarding) running(ctx context.Context, c client.Interface, pod *corev1.Pod, wait bool) (*corev1.Pod, error) {
	if !wait || pod.Status.Phase != corev1.PodPending {
		return pod, nil
	}
	limited, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	running, err := untilPod(limited, c, pod.Namespace, pod.Name, func(p *corev1.Pod) (bool, error) { return p.Status.Phase != corev1.PodPending, nil })
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return pod, nil
	}
	return running, err
}

// serviceNamed returns the service that a command line names, or nil.
func serviceNamed(ctx context.Context, s *session.Session, c client.Interface, name string) (*corev1.Service, error) {
	if !strings.Contains(name, "/") {
		return nil, nil // it is a pod
	}
	infos, err := s.Infos(ctx, session.Input{}, []string{name})
	if err != nil || infos[0].Mapping.GroupVersionResource != client.Services.GroupVersionResource {
		return nil, err
	}
	return client.Services.Get(ctx, c, infos[0].Namespace, infos[0].Name)
}

// mapping returns LOCAL:REMOTE with the number of a port of the pod.
func mapping(text string, svc *corev1.Service, pod *corev1.Pod) (string, error) {
	local, remote, two := strings.Cut(text, ":")
	if !two {
		remote = local
	}
	if remote == "" {
		return "", errors.New("remote port cannot be empty")
	}
	var number int32
	var err error
	if svc != nil {
		var own int32
		if own, number, err = servicePort(remote, svc, pod); err == nil && local == remote {
			local = strconv.Itoa(int(own))
		}
	} else if number, err = podPort(remote, pod); err == nil && !two {
		local = strconv.Itoa(int(number))
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s:%d", local, number), nil
}

// servicePort returns the number of a port of a service, and that of the pod's port behind it.
func servicePort(text string, svc *corev1.Service, pod *corev1.Pod) (own, behind int32, err error) {
	n, convErr := strconv.ParseInt(text, 10, 32)
	udp := false
	for _, p := range svc.Spec.Ports {
		if convErr == nil && int64(p.Port) != n || convErr != nil && p.Name != text {
			continue
		}
		if p.Protocol == corev1.ProtocolUDP {
			udp = true
			continue
		}
		switch {
		case svc.Spec.ClusterIP == corev1.ClusterIPNone && p.TargetPort.Type == intstr.Int && p.TargetPort.IntVal == 0:
			return p.Port, p.Port, nil
		case p.TargetPort.Type == intstr.Int && p.TargetPort.IntVal == 0:
			return p.Port, p.Port, nil
		case p.TargetPort.Type == intstr.Int:
			return p.Port, p.TargetPort.IntVal, nil
		}
		behind, err = podPort(p.TargetPort.StrVal, pod)
		return p.Port, behind, err
	}
	switch {
	case udp:
		return 0, 0, fmt.Errorf("UDP protocol is not supported for %s", text)
	case convErr != nil:
		return 0, 0, fmt.Errorf("Service '%s' does not have a named port '%s'", svc.Name, text) //nolint:staticcheck // kubectl's words
	}
	return 0, 0, fmt.Errorf("Service %s does not have a service port %d", svc.Name, n) //nolint:staticcheck // kubectl's words
}

// podPort returns the number of a port of a pod.
func podPort(text string, pod *corev1.Pod) (int32, error) {
	n, convErr := strconv.ParseInt(text, 10, 32)
	udp := false
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, p := range c.Ports {
			if convErr == nil && int64(p.ContainerPort) != n || convErr != nil && p.Name != text {
				continue
			}
			if p.Protocol != corev1.ProtocolUDP {
				return p.ContainerPort, nil
			}
			udp = true
		}
	}
	switch {
	case udp:
		return 0, fmt.Errorf("UDP protocol is not supported for %s", text)
	case convErr != nil:
		return 0, fmt.Errorf("Pod '%s' does not have a named port '%s'", pod.Name, text) //nolint:staticcheck // kubectl's words
	case n < 1 || n > 65535:
		return 0, fmt.Errorf("remote port %s must be from 1 to 65535", text)
	}
	return int32(n), nil // it was checked
}

// newDialer returns a dialer of SPDY in WebSocket, and of SPDY if the server or a proxy before it has no WebSocket.
func newDialer(c *client.REST, pod *corev1.Pod) (httpstream.Dialer, error) {
	cfg, at := streamConfig(c), c.URL(podPath(pod, "portforward"), nil)
	transport, upgrader, err := spdy.RoundTripperFor(cfg)
	if err != nil {
		return nil, err
	}
	socket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(at, cfg)
	if err != nil {
		return nil, err
	}
	plain := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, at)
	return portforward.NewFallbackDialerForStreaming(socket, plain, noWebSocket), nil
}
