package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	streamRounds = 7
	streamBytes  = 256 << 20
	streamPort   = 8080
	streamPod    = "streams"
	inPod        = "/bench/bench" // this program in the pod
)

// A stream is one way of moving bytes.
type stream struct {
	name  string
	floor string // the name of another one with the same ends
	move  func(context.Context) (time.Duration, error)
	took  []time.Duration
	ticks int64 // of the processor, in all rounds
}

// streams measures exec and port-forward through the API server, the agent and the runtime. All ways take turns in one run. The
// floors are copies over TLS without them, see streamsbare.go: between the source and the reader themselves, which a pod can't have, as
// it does not speak TLS; by one process with TLS before the source; and between the ends that kubectl has.
func (b *bench) streams(ctx context.Context) error {
	if err := b.streamPod(ctx); err != nil {
		return err
	}
	var source, plug, socket, hop, behind streamGreeting
	for _, p := range []struct {
		greeting *streamGreeting
		args     func() []string
	}{
		{&source, func() []string { return []string{bareSourceVerb} }},
		{&plug, func() []string { return []string{barePlugVerb, source.Plain} }},
		{&hop, func() []string { return []string{bareRelayVerb, source.Plain} }},
		{&behind, func() []string { return []string{barePlugVerb, hop.Plain} }},
		{&socket, func() []string {
			return []string{bareSocketVerb, plug.TLS, base64.StdEncoding.EncodeToString(plug.Certificate)}
		}},
	} {
		_, stop, err := startVerb(ctx, p.greeting, p.args()...)
		if err != nil {
			return err
		}
		defer stop()
	}
	cfg, err := b.config()
	if err != nil {
		return err
	}
	thin, err := newThinClient(cfg)
	if err != nil {
		return err
	}
	const bare, server, ends, hops = "TLS copy, %s", "TLS copy, %s, by a process before it", "TLS copy, %s, with kubectl's ends", "TLS copy, %s, by two processes before it"
	var all []*stream
	add := func(name, floor string, move func(context.Context) (time.Duration, error)) {
		all = append(all, &stream{name: name, floor: floor, move: move})
	}
	for _, way := range []struct {
		name     string
		down, up int64
	}{{"from the pod", streamBytes, 0}, {"to the pod", 0, streamBytes}} {
		over := func(dial func(context.Context) (halfCloser, error)) func(context.Context) (time.Duration, error) {
			return func(ctx context.Context) (time.Duration, error) {
				conn, err := dial(ctx)
				if err != nil {
					return 0, err
				}
				return transfer(conn, way.down, way.up)
			}
		}
		tls := func(to streamGreeting) func(context.Context) (time.Duration, error) {
			return over(func(context.Context) (halfCloser, error) {
				return dialBare(to.TLS, base64.StdEncoding.EncodeToString(to.Certificate))
			})
		}
		unserved, strict, alike := fmt.Sprintf(bare, way.name), fmt.Sprintf(server, way.name), fmt.Sprintf(ends, way.name)
		add(unserved, "", tls(source))
		add(strict, unserved, tls(plug))
		add(alike, unserved, over(dialPlain(socket.Plain)))
		add(fmt.Sprintf(hops, way.name), unserved, tls(behind))
		for _, protocol := range protocols {
			address, stop, err := b.kubectlForward(ctx, protocol)
			if err != nil {
				return err
			}
			defer stop()
			name := "port-forward, " + protocol.name + ", " + way.name
			add(name+", thin client", strict, over(func(ctx context.Context) (halfCloser, error) {
				return thin.forward(ctx, streamPod, streamPort, protocol.webSocket)
			}))
			add(name+", kubectl", alike, over(dialPlain(address)))
		}
	}
	all = append(all, b.commandStreams(ctx, thin, plug)...)
	return b.takeTurns(ctx, all)
}

// commandStreams are the output and the input of commands. The source is a process that prints.
func (b *bench) commandStreams(ctx context.Context, thin *thinClient, plug streamGreeting) (all []*stream) {
	const strict, alike, input = "TLS copy, of a command, by a process before it", "TLS copy, of a command, with kubectl's ends", "TLS copy, to the pod, with kubectl's ends"
	size, cert := strconv.Itoa(streamBytes), base64.StdEncoding.EncodeToString(plug.Certificate)
	all = append(all, &stream{name: strict, floor: "TLS copy, from the pod", move: func(context.Context) (time.Duration, error) {
		conn, err := dialBare(plug.Command, cert)
		if err != nil {
			return 0, err
		}
		defer func() { _ = conn.Close() }()
		if err := request(conn, streamBytes); err != nil {
			return 0, err
		}
		n, took, err := drained(conn)
		return took, errors.Join(err, complete(n))
	}}, &stream{name: alike, floor: "TLS copy, from the pod", move: func(ctx context.Context) (time.Duration, error) {
		self, err := os.Executable()
		if err != nil {
			return 0, err
		}
		return printed(exec.CommandContext(ctx, self, barePipeVerb, plug.Command, cert, size))
	}})
	for _, protocol := range protocols {
		name := "exec, " + protocol.name
		all = append(all, &stream{name: name + ", output, thin client", floor: strict, move: func(ctx context.Context) (time.Duration, error) {
			n, took, err := thin.output(ctx, streamPod, protocol.webSocket, inPod, bareZerosVerb, size)
			return took, errors.Join(err, complete(n))
		}}, &stream{name: name + ", output, kubectl", floor: alike, move: func(ctx context.Context) (time.Duration, error) {
			return printed(b.kubectl(ctx, protocol, "exec", streamPod, "--", inPod, bareZerosVerb, size))
		}}, &stream{name: name + ", input, kubectl", floor: input, move: func(ctx context.Context) (time.Duration, error) {
			return fed(b.kubectl(ctx, protocol, "exec", "-i", streamPod, "--", inPod, bareSinkVerb))
		}})
	}
	return all
}

// fed gives a command its input, and returns how long that takes from the line on that it prints first.
func fed(cmd *exec.Cmd) (time.Duration, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != sinkReady {
		return 0, errors.Join(fmt.Errorf("a sink printed %q", lines.Text()), lines.Err(), in.Close(), cmd.Wait())
	}
	began := time.Now()
	if err := errors.Join(zeros(in, streamBytes), in.Close()); err != nil {
		return 0, errors.Join(err, cmd.Wait())
	}
	lines.Scan()
	n, err := strconv.ParseInt(lines.Text(), 10, 64)
	took := time.Since(began)
	return took, errors.Join(err, lines.Err(), cmd.Wait(), complete(n))
}

// takeTurns moves the bytes in all ways, one after the other in each round, and prints the medians, and the time of the processor
// that the cluster takes.
func (b *bench) takeTurns(ctx context.Context, all []*stream) error {
	pids, err := b.instance()
	if err != nil {
		return err
	}
	medians := map[string]time.Duration{}
	for round := range streamRounds + 1 {
		for _, s := range all {
			before, _, err := usage(pids)
			if err != nil {
				return err
			}
			took, err := s.move(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			after, _, err := usage(pids)
			if err != nil {
				return err
			}
			if round > 0 { // the first one warms up
				s.ticks += after - before
				s.took = append(s.took, took)
				medians[s.name] = median(s.took)
			}
		}
	}
	rate := func(d time.Duration) string { return fmt.Sprintf("%.0f MB/s", streamBytes/1e6/d.Seconds()) }
	for _, s := range all {
		goal := ">= 0.7"
		if strings.HasPrefix(s.name, "TLS") {
			goal = ""
		}
		if s.floor == "" {
			b.row(s.name, rate(medians[s.name]), "", "", "")
			continue
		}
		floor := medians[s.floor]
		b.row(s.name, rate(medians[s.name]), rate(floor), fmt.Sprintf("%.2f", floor.Seconds()/medians[s.name].Seconds()), goal)
		if goal != "" {
			perGB := float64(s.ticks) / ticksPerSecond / streamRounds * 1e9 / streamBytes
			b.row("  processor time of the cluster", fmt.Sprintf("%.2f s per GB", perGB), "", "", "")
		}
	}
	return nil
}

// streamPod starts a pod that runs this program as a source.
func (b *bench) streamPod(ctx context.Context) error {
	api, err := b.client()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = api.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: streamPod},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "main", Image: "sampan.local/demo:v1",
				Command:      []string{inPod, bareSourceVerb, ":" + strconv.Itoa(streamPort)},
				VolumeMounts: []corev1.VolumeMount{{Name: "bench", MountPath: filepath.Dir(inPod), ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "bench", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: filepath.Dir(self)},
			}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := awaitPods(ctx, api, 1, isRunning); err != nil {
		return err
	}
	return pause(ctx, time.Second) // it has no probe that reports when it listens
}

// A protocol is one that kubectl speaks.
type protocol struct {
	name      string
	webSocket bool
}

var protocols = []protocol{{"WebSocket", true}, {"SPDY", false}}

// kubectl returns a command of upstream's kubectl, which is beside this program.
func (b *bench) kubectl(ctx context.Context, p protocol, args ...string) *exec.Cmd {
	args = append([]string{"--kubeconfig=" + filepath.Join(b.data(), "admin.kubeconfig")}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(os.Args[0]), "kubectl"), args...)
	on := strconv.FormatBool(p.webSocket)
	cmd.Env = append(os.Environ(), "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+on, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+on)
	cmd.Stderr = os.Stderr
	return cmd
}

// kubectlForward runs kubectl port-forward and returns the local address.
func (b *bench) kubectlForward(ctx context.Context, p protocol) (address string, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := b.kubectl(ctx, p, "port-forward", "pod/"+streamPod, "--address=127.0.0.1", fmt.Sprintf(":%d", streamPort))
	cmd.WaitDelay = 10 * time.Second
	stop = func() {
		cancel()
		_ = cmd.Wait()
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", stop, err
	}
	if err := cmd.Start(); err != nil {
		return "", stop, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", stop, fmt.Errorf("kubectl port-forward: %w", err)
	}
	words := strings.Fields(line) // Forwarding from 127.0.0.1:40001 -> 8080
	if len(words) < 3 {
		return "", stop, fmt.Errorf("kubectl port-forward printed %q", line)
	}
	return words[2], stop, nil
}

func dialPlain(address string) func(context.Context) (halfCloser, error) {
	return func(ctx context.Context) (halfCloser, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return conn.(*net.TCPConn), nil
	}
}

// printed runs a command and returns how long it prints, from the first byte on.
func printed(cmd *exec.Cmd) (time.Duration, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	n, took, err := drained(out)
	return took, errors.Join(err, cmd.Wait(), complete(n))
}

func complete(n int64) error {
	if n != streamBytes {
		return fmt.Errorf("%d bytes came, want %d", n, streamBytes)
	}
	return nil
}
