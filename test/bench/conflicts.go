package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conflicts measures useful updates of one object by many clients that each read it, change it
// and write it back with its resourceVersion, and begin again after a conflict. Each client has a
// connection of its own. The floor is one client alone.
func (b *bench) conflicts(ctx context.Context) error {
	const many = 16
	ours, err := b.ours()
	if err != nil {
		return err
	}
	const path = "/api/v1/namespaces/default/configmaps"
	first, err := json.Marshal(&corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "one"},
		Data: map[string]string{"count": "0"},
	})
	if err != nil {
		return err
	}
	if _, err := ours.send(ctx, path, "", first); err != nil {
		return err
	}
	var rates, cpus, tries [2][]float64
	for i := range turns + 1 {
		for k, clients := range []int{many, 1} {
			t, perUpdate, err := ours.update(ctx, path+"/one", clients)
			if err != nil {
				return err
			}
			if i > 0 { // the first turn warms up
				rates[k], cpus[k], tries[k] = append(rates[k], t.rate), append(cpus[k], t.cpu), append(tries[k], perUpdate)
			}
		}
	}
	b.row(fmt.Sprintf("useful updates of one object, %d clients that read, change and write", many),
		fmt.Sprintf("%.0f/s", median(rates[0])), fmt.Sprintf("%.0f/s", median(rates[1])), fmt.Sprintf("%.2f", median(rates[0])/median(rates[1])), ">= 1,000/s")
	b.row("  CPU of the server for one", fmt.Sprintf("%.0f µs", median(cpus[0])), fmt.Sprintf("%.0f µs", median(cpus[1])), fmt.Sprintf("%.2f", median(cpus[0])/median(cpus[1])), "")
	b.row("  writes for one", fmt.Sprintf("%.1f", median(tries[0])), fmt.Sprintf("%.1f", median(tries[1])), "", "")
	return nil
}

// update lets clients update an object for a turn. The throughput counts the updates that
// succeeded; tries are the writes that each of them took.
func (s *server) update(ctx context.Context, path string, clients int) (_ throughput, tries float64, err error) {
	before, _, err := usage([]int{s.pid})
	if err != nil {
		return throughput{}, 0, err
	}
	var (
		done, sent atomic.Int64
		group      errgroup.Group
	)
	began := time.Now()
	for range clients {
		c := &http.Client{Transport: s.transport()}
		group.Go(func() error {
			defer c.CloseIdleConnections()
			for time.Since(began) < turn {
				sent.Add(1)
				ok, err := s.updateOnce(ctx, c, path)
				if err != nil {
					return err
				}
				if ok {
					done.Add(1)
				}
			}
			return nil
		})
	}
	err = group.Wait()
	took := time.Since(began)
	after, _, usageErr := usage([]int{s.pid})
	n := float64(done.Load())
	return throughput{rate: n / took.Seconds(), cpu: float64(after-before) / ticksPerSecond * 1e6 / n}, float64(sent.Load()) / n, errors.Join(err, usageErr)
}

// updateOnce reads the object, changes it and writes it. It reports false after a conflict.
func (s *server) updateOnce(ctx context.Context, c *http.Client, path string) (bool, error) {
	resp, err := s.ask(ctx, c, path, "", nil)
	if err != nil {
		return false, err
	}
	var m corev1.ConfigMap
	if err := errors.Join(json.NewDecoder(resp.Body).Decode(&m), resp.Body.Close()); err != nil {
		return false, err
	}
	m.Data["count"] += "."
	if len(m.Data["count"]) > 100 {
		m.Data["count"] = ""
	}
	body, err := json.Marshal(&m)
	if err != nil {
		return false, err
	}
	status, err := s.put(ctx, c, path, body)
	if err != nil || status == http.StatusConflict {
		return false, err
	}
	if status != http.StatusOK {
		return false, fmt.Errorf("PUT %s: status %d", path, status)
	}
	return true, nil
}
