package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// saves measures the latency of writes to a cluster of 100,000 objects while snapshots are taken one after the other.
// The floor is the latency of such writes in as much time without snapshots.
func (b *bench) saves(ctx context.Context) error {
	const objects, snapshots = 100_000, 10
	ours, err := b.ours()
	if err != nil {
		return err
	}
	if err := b.fill(ctx, 0, objects); err != nil {
		return err
	}
	if err := ours.createWritten(ctx); err != nil {
		return err
	}
	other := *ours // the snapshots go over a connection of their own
	other.client = &http.Client{Transport: ours.transport()}
	began := time.Now()
	var length time.Duration
	during, err := ours.writeDuring(ctx, func() error {
		for range snapshots {
			if _, err := other.send(ctx, "/sampan/v1/snapshot", "", nil); err != nil {
				return err
			}
		}
		length = time.Since(began)
		return nil
	})
	if err != nil {
		return err
	}
	without, err := ours.writeDuring(ctx, func() error { return pause(ctx, length) })
	if err != nil {
		return err
	}
	for _, q := range []float64{0.5, 0.99, 0.999} {
		b.against(fmt.Sprintf("update during snapshots of %d objects, %d clients, p%g", objects, clients, q*100), quantile(during, q), quantile(without, q), "")
	}
	b.against("  the longest", slices.Max(during), slices.Max(without), "20 ms more")
	b.row("  updates", fmt.Sprintf("%.0f/s", float64(len(during))/length.Seconds()), fmt.Sprintf("%.0f/s", float64(len(without))/length.Seconds()), "", "")
	return nil
}

const objectsOfWriter = 8

// written returns the name and the body of an object that one client writes.
func written(writer, object, turn int) (name string, body []byte, err error) {
	name = fmt.Sprintf("written-%d-%d", writer, object)
	body, err = json.Marshal(&corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"turn": strconv.Itoa(turn)},
	})
	return name, body, err
}

// createWritten makes the objects for [server.writeDuring].
func (s *server) createWritten(ctx context.Context) error {
	for i := range clients {
		for k := range objectsOfWriter {
			_, body, err := written(i, k, 0)
			if err == nil {
				_, err = s.send(ctx, configMapsPath, "", body)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// writeDuring updates objects with many clients until do has returned, and returns how long each update took.
func (s *server) writeDuring(ctx context.Context, do func() error) (all []time.Duration, err error) {
	var (
		done  atomic.Bool
		group errgroup.Group
		mu    sync.Mutex
	)
	for i := range clients {
		group.Go(func() error {
			var took []time.Duration
			for turn := 1; !done.Load(); turn++ {
				name, body, err := written(i, turn%objectsOfWriter, turn)
				if err != nil {
					return err
				}
				began := time.Now()
				status, err := s.put(ctx, s.client, configMapsPath+"/"+name, body)
				if err != nil || status != http.StatusOK {
					return errors.Join(err, fmt.Errorf("updating %s: status %d", name, status))
				}
				took = append(took, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
			return nil
		})
	}
	err = do()
	done.Store(true)
	return all, errors.Join(err, group.Wait())
}
