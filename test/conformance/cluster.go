package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sampan-io/sampan/test/conformance/mirror"
)

// Addresses of the machines on their link, which .ci/conformance makes, and the network namespace of the second one.
const (
	addressOne   = "192.0.2.1"
	namespaceTwo = "/run/netns/two"
	mirrorPort   = "5000"
)

// A cluster has two nodes on this machine: the one of the server in this network namespace, and one that has joined it.
type cluster struct {
	options
	nodes  []node
	server *http.Server // of the images; nil before it is started
}

// A node is one machine of the cluster.
type node struct {
	name    string   // of the node, "one" or "two"
	profile string   // --name of its commands
	enter   []string // command that runs another one on the machine
}

func newCluster(o options) *cluster {
	return &cluster{options: o, nodes: []node{
		{name: "one", profile: o.name},
		{name: "two", profile: o.name + "-two", enter: []string{"nsenter", "--net=" + namespaceTwo, "--"}},
	}}
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.work, "kubeconfig") }
func (c *cluster) registries() string { return filepath.Join(c.work, "registries") }

// env is the environment of the commands: nothing is read from or written to the home directory of the user.
func (c *cluster) env() []string {
	return append(os.Environ(), "HOME="+c.work, "KUBECONFIG="+c.kubeconfig())
}

// command runs a command of sampan on a node and returns its output.
func (c *cluster) command(ctx context.Context, n node, args ...string) (string, error) {
	line := append(append(slices.Clip(n.enter), c.sampan), args...)
	line = append(line, "--name="+n.profile, "--data-dir="+filepath.Join(c.work, n.name))
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	var out, all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both{&out, &all}, &all
	cmd.Env, cmd.Dir = c.env(), c.work
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(line, " "), err, all.String())
	}
	return out.String(), nil
}

// both writes to two buffers.
type both struct{ a, b *bytes.Buffer }

func (w *both) Write(p []byte) (int, error) {
	_, _ = w.a.Write(p) // a buffer returns no error
	return w.b.Write(p)
}

// up starts the mirror of the images and the two nodes, and imports the images on both.
func (c *cluster) up(ctx context.Context) error {
	if err := c.serveImages(ctx); err != nil {
		return err
	}
	settings := []string{"--cluster-dns-upstream=none", "--registries=" + c.registries()}
	if c.kubelet != "" {
		settings = append(settings, "--kubelet-config="+c.kubelet)
	}
	one, two := c.nodes[0], c.nodes[1]
	began := time.Now()
	_, err := c.command(ctx, one, append([]string{
		"up", "--node-name=" + one.name, "--advertise-address=" + addressOne,
		"--pod-network=10.75.0.0/16", "--service-network=10.76.0.0/16",
	}, settings...)...)
	if err != nil {
		return err
	}
	line, err := c.command(ctx, one, "token", "create", "--print-join-command")
	if err != nil {
		return err
	}
	words := strings.Fields(line) // sampan join HOST:PORT --token=… --ca-cert-hash=…
	if len(words) < 3 {           // sampan join HOST:PORT
		return fmt.Errorf("sampan token create printed %q", line)
	}
	if _, err := c.command(ctx, two, append(append(words[1:], "--node-name="+two.name), settings...)...); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if _, err := c.command(ctx, n, "image", "import", filepath.Join(c.bin, "images.tar")); err != nil {
			return err
		}
	}
	fmt.Printf("two nodes with the images are ready after %.1f s\n", time.Since(began).Seconds())
	return nil
}

// serveImages serves the images to both nodes as the mirror of their registries: the suite also has pods whose images are
// pulled each time.
func (c *cluster) serveImages(ctx context.Context) error {
	m, err := mirror.New(filepath.Join(c.bin, "images"))
	if err != nil {
		return err
	}
	address := net.JoinHostPort(addressOne, mirrorPort)
	if err := m.Configure(c.registries(), address); err != nil {
		return err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	c.server = &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	go func() { _ = c.server.Serve(l) }() // until down
	return nil
}

// down stops both nodes and removes what they have made. It keeps their logs.
func (c *cluster) down(ctx context.Context) error {
	one, two := c.nodes[0], c.nodes[1]
	var errs []error
	for _, n := range c.nodes {
		for _, log := range []string{"sampan.log", "runtime.log"} {
			data, err := os.ReadFile(filepath.Join(c.work, n.name, log))
			if err == nil {
				err = os.WriteFile(filepath.Join(c.results, n.name+"-"+log), data, 0o600)
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(c.work, two.name)); err == nil {
		_, err := c.command(ctx, two, "leave")
		errs = append(errs, err)
	}
	if _, err := os.Stat(filepath.Join(c.work, one.name)); err == nil {
		_, err := c.command(ctx, one, "down", "--purge")
		errs = append(errs, err)
	}
	if c.server != nil {
		errs = append(errs, c.server.Close())
	}
	return errors.Join(errs...)
}
