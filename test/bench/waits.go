package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// waits measures what a wait costs beside the start of the program, beside kubectl's
// if $KUBECTL names one: for one Ready pod and for a thousand; and what a process holds
// that waits for ten thousand. No node has the pods: what is measured is the wait.
func (b *bench) waits(ctx context.Context) error {
	api, err := b.client()
	if err != nil {
		return err
	}
	const thousand, crowd = 1000, 10_000
	if err := standIns(ctx, api, "ready", thousand, true); err != nil {
		return err
	}
	kubectl := os.Getenv("KUBECTL")
	one, err := b.beyondStart(ctx, b.program, "wait", "pod/ready-0", "--for=ready")
	if err != nil {
		return err
	}
	if kubectl == "" {
		b.row("one Ready pod, sampan wait", ms(one), "", "", "<= 1/10 of kubectl's, see $KUBECTL")
	} else {
		theirs, err := b.beyondStart(ctx, kubectl, "wait", "pod/ready-0", "--for=condition=Ready")
		if err != nil {
			return err
		}
		b.against("one Ready pod, sampan wait beside kubectl's", one, theirs, "<= 0.1")
	}
	all, err := b.beyondStart(ctx, b.program, "wait", "pods", "-l", "set=ready", "--for=ready")
	if err != nil {
		return err
	}
	b.row("1000 Ready pods, sampan wait", ms(all), "", "", "<= 100 ms")
	if kubectl != "" {
		cmd := b.command(ctx, kubectl, "wait", "pods", "-l", "set=ready", "--for=condition=Ready", "--timeout=10s")
		began := time.Now()
		err := cmd.Run()
		says := "it succeeds"
		if err != nil {
			says = "it fails"
		}
		b.row("1000 Ready pods, kubectl wait --timeout=10s", ms(time.Since(began)), "", "", says)
	}
	if err := standIns(ctx, api, "waiting", crowd, false); err != nil {
		return err
	}
	return b.crowd(ctx, crowd)
}

// standIns creates pods that no scheduler looks at, in the state that is asked for.
func standIns(ctx context.Context, api kubernetes.Interface, set string, n int, ready bool) error {
	pods := api.CoreV1().Pods("default")
	const at = 32 // once
	errs := make([]error, at)
	var g sync.WaitGroup
	for worker := range at {
		g.Go(func() {
			for i := worker; i < n && errs[worker] == nil; i += at {
				p, err := pods.Create(ctx, &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", set, i), Labels: map[string]string{"set": set}},
					Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "main", Image: "any"}}},
				}, metav1.CreateOptions{})
				if err == nil && ready {
					p.Status.Phase = corev1.PodRunning
					p.Status.ObservedGeneration = p.Generation
					p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
					_, err = pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
				}
				errs[worker] = err
			}
		})
	}
	g.Wait()
	return errors.Join(errs...)
}

func (b *bench) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	args = append([]string{"--kubeconfig=" + filepath.Join(b.data(), "admin.kubeconfig")}, args...)
	return exec.CommandContext(ctx, program, args...)
}

// beyondStart returns the median of how much longer a command takes than its program
// takes to start.
func (b *bench) beyondStart(ctx context.Context, program string, args ...string) (time.Duration, error) {
	const n = 10
	var start, whole []time.Duration
	for range n {
		for _, run := range []struct {
			cmd *exec.Cmd
			to  *[]time.Duration
		}{
			{exec.CommandContext(ctx, program, "version", "--client"), &start},
			{b.command(ctx, program, args...), &whole},
		} {
			var says bytes.Buffer
			run.cmd.Stderr = &says
			began := time.Now()
			if err := run.cmd.Run(); err != nil {
				return 0, fmt.Errorf("%s: %w: %s", strings.Join(run.cmd.Args, " "), err, says.String())
			}
			*run.to = append(*run.to, time.Since(began))
		}
	}
	return max(median(whole)-median(start), 0), nil
}

// crowd measures a process that waits for n pods: its memory and its goroutines.
func (b *bench) crowd(ctx context.Context, n int) error {
	cmd := b.command(ctx, b.program, "wait", "pods", "-l", "set=waiting", "--for=ready", "--timeout=-1s")
	cmd.Env = append(os.Environ(), "GOTRACEBACK=all")
	says, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(says)
	for range min(n, 10) { // it says at once what the first of them wait for, and groups the rest
		if !lines.Scan() {
			return fmt.Errorf("sampan wait ended: %w", cmp.Or(lines.Err(), cmd.Wait()))
		}
	}
	if err := pause(ctx, 10*time.Second); err != nil { // what reading the list took is given back
		return err
	}
	pss, err := memory([]int{cmd.Process.Pid})
	if err != nil {
		return err
	}
	b.row("10000 waiting pods, memory of sampan wait (PSS)", fmt.Sprintf("%.1f MiB", float64(pss)/(1<<20)), "", "", "<= 64 MiB")
	if err := cmd.Process.Signal(syscall.SIGQUIT); err != nil { // it prints its goroutines, and exits
		return err
	}
	goroutines := 0
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "goroutine ") && !strings.HasPrefix(lines.Text(), "goroutine 0 ") {
			goroutines++
		}
	}
	_ = cmd.Wait() // SIGQUIT always exits with an error
	b.row("10000 waiting pods, goroutines of sampan wait", fmt.Sprint(goroutines), "", "", "<= 10 per watched resource (2: pods, events)")
	return nil
}
