// Attacktest attacks a cluster as one of its users, and measures an administrator's waits. It is for clusters that may
// be lost:
//
//	attacktest KUBECONFIG TOKEN [ATTACK...]
//
// TOKEN is that of any service account. Each attack (package apiservertest has them; all of them unless some are named)
// runs for a while in a process of its own. Of each one line says how long GETs of an administrator took
// meanwhile, on a connection that was open before and on new ones, and what memory the server had.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/internal/run"
)

const (
	// Allowed to every user.
	create = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	list   = "/openapi/v2"

	attackNice = 15 // the priority of the attack, as of nice(1)

	measured = 100                   // GETs
	pause    = 50 * time.Millisecond // between two of them
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := attack(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "attacktest:", err)
		os.Exit(1)
	}
}

func attack(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("usage: attacktest KUBECONFIG TOKEN [ATTACK...]")
	}
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return err
	}
	if len(args) == 4 && args[2] == "hold" {
		return hold(ctx, config, args[1], args[3])
	}
	names := args[2:]
	if len(names) == 0 {
		names = append(names, "none")
		for _, k := range apiservertest.Attacks() {
			names = append(names, k.Name)
		}
	}
	for _, name := range names {
		if err := measure(ctx, config, args[:2], name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// hold attacks until its standard input ends.
func hold(ctx context.Context, config *rest.Config, token, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	at, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	target := apiservertest.Target{
		Address: at.Host, TLS: &tls.Config{RootCAs: roots, ServerName: at.Hostname(), MinVersion: tls.VersionTLS13},
		Header: http.Header{"Authorization": {"Bearer " + token}}, Create: create, List: list,
	}
	for _, k := range apiservertest.Attacks() {
		if k.Name == name {

			g := run.NewGroup(ctx, 0)
			g.Go(func(context.Context) {
				_, _ = io.Copy(io.Discard, os.Stdin)
				cancel()
			})
			k.Run(ctx, target, k.Connections, func() { fmt.Println("held") })
			g.Wait()
			return nil
		}
	}
	return fmt.Errorf("no such attack: %q", name)
}

// measure asks as an administrator while an attack holds all that it can.
func measure(ctx context.Context, config *rest.Config, args []string, name string) error {
	kept, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	if _, err := ask(ctx, kept, config.Host); err != nil {
		return err
	}
	if name != "none" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		child := exec.CommandContext(ctx, self, append(slices.Clone(args), "hold", name)...)
		child.Stderr = os.Stderr
		child.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
		stdin, err := child.StdinPipe()
		if err != nil {
			return err
		}
		stdout, err := child.StdoutPipe()
		if err != nil {
			return err
		}
		if err := child.Start(); err != nil {
			return err
		}
		// Attackers have machines of their own. Here they leave the CPU to the server.
		if err := unix.Setpriority(unix.PRIO_PGRP, child.Process.Pid, attackNice); err != nil {
			return err
		}
		defer func() {
			_ = stdin.Close()
			_ = child.Wait()
		}()
		if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
			return fmt.Errorf("the attack did not begin: %w", err)
		}
	}
	var old, fresh []time.Duration
	failed := map[string]int{}
	for range measured {
		new := rest.CopyConfig(config)
		new.Dial = nil
		transport, err := rest.TLSConfigFor(new)
		if err != nil {
			return err
		}
		once := &http.Client{Transport: &http.Transport{TLSClientConfig: transport, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
		for client, to := range map[*http.Client]*[]time.Duration{kept: &old, once: &fresh} {
			took, err := ask(ctx, client, config.Host)
			if err != nil {
				failed[err.Error()]++
			}
			*to = append(*to, took)
		}
		time.Sleep(pause)
	}
	fmt.Printf("%-20s open connection %s   new connections %s   server %s   failed %v\n", name, describe(old), describe(fresh), memory(ctx, kept, config.Host), failed)
	return nil
}

// ask makes a request and returns how long it took.
func ask(ctx context.Context, c *http.Client, host string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	start := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/api/v1/namespaces/kube-system", nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return time.Since(start), err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return time.Since(start), err
}

func describe(all []time.Duration) string {
	slices.Sort(all)
	at := func(share float64) time.Duration {
		return all[int(share*float64(len(all)-1))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %7s p99 %7s", at(.5), at(.99))
}

// memory returns the server's metrics of its own memory and descriptors.
func memory(ctx context.Context, c *http.Client, host string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/metrics", nil)
	if err != nil {
		return err.Error()
	}
	resp, err := c.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var out []string
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		n, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "process_resident_memory_bytes":
			out = append(out, fmt.Sprintf("%.0f MB", n/1e6))
		case "process_open_fds":
			out = append(out, fmt.Sprintf("%.0f files", n))
		case "go_goroutines":
			out = append(out, fmt.Sprintf("%.0f goroutines", n))
		}
	}
	return strings.Join(out, ", ")
}
