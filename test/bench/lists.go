package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lists measures the LIST of many pods and what they cost in memory. The floor is
// the copy of as many bytes through the bare server.
func (b *bench) lists(ctx context.Context) error {
	const many = 10_000
	ours, err := b.ours()
	if err != nil {
		return err
	}
	bare, err := startBare(ctx)
	if err != nil {
		return err
	}
	defer bare.stop()
	before, err := b.serverMemory()
	if err != nil {
		return err
	}
	if err := createMany(ctx, ours, many); err != nil {
		return err
	}
	if err := pause(ctx, 10*time.Second); err != nil { // as before "idle"
		return err
	}
	after, err := b.serverMemory()
	if err != nil {
		return err
	}
	b.row("memory of the server with 10,000 pods (PSS)", mib(after), mib(before), "", "<= 120 MiB")
	for _, t := range []struct{ what, accept, goal string }{
		{"JSON", "application/json", "ratio <= 1.3"},
		{"protobuf", "application/vnd.kubernetes.protobuf", "ratio <= 1.3"},
	} {
		var got, floor []time.Duration
		var cpus [2][]float64
		var size int64
		for i := range 3*turns + 1 {
			took, cpu, n, err := ours.timed(ctx, podsPath, t.accept)
			if err != nil {
				return err
			}
			size = n
			least, leastCPU, _, err := bare.timed(ctx, "/?size="+strconv.FormatInt(size, 10), "")
			if err != nil {
				return err
			}
			if i > 0 { // the first turn warms up
				got, floor = append(got, took), append(floor, least)
				cpus[0], cpus[1] = append(cpus[0], cpu), append(cpus[1], leastCPU)
			}
		}
		b.against(fmt.Sprintf("LIST of 10,000 pods, %s (%.0f MB), p50", t.what, float64(size)/1e6), median(got), median(floor), t.goal)
		mine, bares := mean(cpus[0]), mean(cpus[1])
		b.row("  CPU of the server for one", fmt.Sprintf("%.1f ms", mine), fmt.Sprintf("%.1f ms", bares), fmt.Sprintf("%.1f", mine/bares), "")
	}
	streams, err := ours.watch(ctx, 100, 10)
	if err != nil {
		return err
	}
	for _, s := range streams {
		if err := s.Body.Close(); err != nil {
			return err
		}
	}
	if err := pause(ctx, 10*time.Second); err != nil {
		return err
	}
	if after, err = b.serverMemory(); err != nil {
		return err
	}
	b.row("  and after lists and watches", mib(after), mib(before), "", "<= 120 MiB")
	return nil
}

// timed sends a GET and returns how long it took, the milliseconds of the server's CPU, and the
// length of the answer.
func (s *server) timed(ctx context.Context, path, accept string) (took time.Duration, cpu float64, size int64, err error) {
	before, _, err := usage([]int{s.pid})
	if err != nil {
		return 0, 0, 0, err
	}
	began := time.Now()
	if size, err = s.send(ctx, path, accept, nil); err != nil {
		return 0, 0, 0, err
	}
	took = time.Since(began)
	after, _, err := usage([]int{s.pid})
	return took, float64(after-before) / ticksPerSecond * 1e3, size, err
}

// mean is for what is counted in whole ticks.
func mean(all []float64) float64 {
	sum := 0.0
	for _, one := range all {
		sum += one
	}
	return sum / float64(len(all))
}

// createMany creates pods that no node runs, with many clients at once.
func createMany(ctx context.Context, s *server, n int64) error {
	pod, err := json.Marshal(largePod())
	if err != nil {
		return err
	}
	var made atomic.Int64
	var group errgroup.Group
	for range clients {
		group.Go(func() error {
			for made.Add(1) <= n {
				if _, err := s.send(ctx, podsPath, "", pod); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// serverMemory returns the memory of the process that serves the API.
func (b *bench) serverMemory() (int64, error) {
	pids, err := b.instance()
	if err != nil {
		return 0, err
	}
	return memory(pids[:1])
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// watches measures how fast changes reach many watchers. The floor is as many
// streams of as many lines of the same size from the bare server.
func (b *bench) watches(ctx context.Context) error {
	const watchers, connections, patches, rounds = 100, 10, 1000, 5
	ours, err := b.ours()
	if err != nil {
		return err
	}
	bare, err := startBare(ctx)
	if err != nil {
		return err
	}
	defer bare.stop()
	for i := range clients {
		body, err := json.Marshal(namedPod(fmt.Sprintf("watched-%d", i)))
		if err != nil {
			return err
		}
		if _, err := ours.send(ctx, podsPath, "", body); err != nil {
			return err
		}
	}
	begin := func() error {
		_, err := bare.send(ctx, "/?begin", "", []byte{})
		return err
	}
	patch := func() error { return ours.patchStatus(ctx, patches) }
	var rates, cpus [2][]float64
	for range rounds {
		streams, err := open(ctx, &bare.server, fmt.Sprintf("/?events=%d", patches), watchers, connections)
		if err != nil {
			return err
		}
		floor, err := bare.follow(streams, patches, begin)
		if err != nil {
			return err
		}
		if streams, err = ours.watch(ctx, watchers, connections); err != nil {
			return err
		}
		got, err := ours.follow(streams, patches, patch)
		if err != nil {
			return err
		}
		for k, t := range []throughput{got, floor} {
			rates[k], cpus[k] = append(rates[k], t.rate), append(cpus[k], t.cpu)
		}
	}
	got, floor := throughput{median(rates[0]), median(cpus[0])}, throughput{median(rates[1]), median(cpus[1])}
	b.row(fmt.Sprintf("%d watchers of %d status patches", watchers, patches),
		fmt.Sprintf("%.0f deliveries/s", got.rate), fmt.Sprintf("%.0f/s", floor.rate), fmt.Sprintf("%.2f", got.rate/floor.rate), ">= 200,000/s")
	b.row("  CPU of the server for one delivery", fmt.Sprintf("%.1f µs", got.cpu), fmt.Sprintf("%.1f µs", floor.cpu), fmt.Sprintf("%.2f", got.cpu/floor.cpu), "")
	return nil
}

// watch opens watches of the pods from now on.
func (s *server) watch(ctx context.Context, watchers, connections int) ([]*http.Response, error) {
	resp, err := s.ask(ctx, s.client, podsPath+"?limit=1", "", nil)
	if err != nil {
		return nil, err
	}
	var l metav1.PartialObjectMetadataList
	if err := errors.Join(json.NewDecoder(resp.Body).Decode(&l), resp.Body.Close()); err != nil {
		return nil, err
	}
	return open(ctx, s, podsPath+"?watch=true&resourceVersion="+l.ResourceVersion, watchers, connections)
}

// open asks for the same stream many times, over several connections.
func open(ctx context.Context, s *server, path string, n, connections int) ([]*http.Response, error) {
	return openAs(ctx, s, path, "", n, connections)
}

// openAs is [open] for a media type; "" means the server's choice.
func openAs(ctx context.Context, s *server, path, accept string, n, connections int) (streams []*http.Response, err error) {
	var c *http.Client
	for i := range n {
		if i%(n/connections) == 0 {
			c = &http.Client{Transport: s.transport()}
		}
		resp, err := s.ask(ctx, c, path, accept, nil)
		if err != nil {
			return nil, err
		}
		streams = append(streams, resp)
	}
	return streams, nil
}

// follow calls start, counts lines until every stream has given its share, and returns
// how many came a second since then, and what each cost the server.
func (s *server) follow(streams []*http.Response, lines int, start func() error) (throughput, error) {
	before, _, err := usage([]int{s.pid})
	if err != nil {
		return throughput{}, err
	}
	began := time.Now()
	var group errgroup.Group
	group.Go(start)
	for _, s := range streams {
		group.Go(func() error {
			in := bufio.NewReaderSize(s.Body, 16<<10)
			for range lines {
				// A line may be longer than the buffer; only its end counts.
				_, err := in.ReadSlice('\n')
				for errors.Is(err, bufio.ErrBufferFull) {
					_, err = in.ReadSlice('\n')
				}
				if err != nil {
					return fmt.Errorf("a stream of %d lines ended early: %w", lines, err)
				}
			}
			return nil
		})
	}
	err = group.Wait()
	took := time.Since(began)
	after, _, usageErr := usage([]int{s.pid})
	err = errors.Join(err, usageErr)
	for _, s := range streams {
		err = errors.Join(err, s.Body.Close())
	}
	n := float64(lines * len(streams))
	return throughput{rate: n / took.Seconds(), cpu: float64(after-before) / ticksPerSecond * 1e6 / n}, err
}

// patchStatus patches the status of the watched pods, with many clients at once.
func (s *server) patchStatus(ctx context.Context, n int64) error {
	var sent atomic.Int64
	var group errgroup.Group
	for i := range clients {
		path := fmt.Sprintf("%s/watched-%d/status", podsPath, i)
		group.Go(func() error {
			for {
				k := sent.Add(1)
				if k > n {
					return nil
				}
				body := fmt.Appendf(nil, `{"status":{"message":"%d of %d"}}`, k, time.Now().UnixNano())
				resp, err := s.do(ctx, s.client, http.MethodPatch, path, "", "application/merge-patch+json", body)
				if err != nil {
					return err
				}
				_ = resp.Body.Close()
			}
		})
	}
	return group.Wait()
}
