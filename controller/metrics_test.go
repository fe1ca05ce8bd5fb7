package controller_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

func TestQueueMetricsHaveUpstreamsNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &controller.Metrics{}
		registry := prometheus.NewRegistry()
		registry.MustRegister(m)
		failed := false
		loop := controller.New(controller.Options{Name: "sleeper", Workers: 1, Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			run.Pause(ctx, time.Second)
			if key.Name == "b" && !failed {
				failed = true
				return controller.Result{}, errors.New("the first try fails")
			}
			return controller.Result{}, nil
		}})
		loop.Add(controller.Key{Name: "a"})
		loop.Add(controller.Key{Name: "b"})
		loop.Add(controller.Key{Name: "c"})
		g := run.NewGroup(controller.WithMetrics(t.Context(), m), 0)
		g.Go(func(ctx context.Context) { _ = loop.Run(ctx) })
		check := func(want map[string]float64) {
			t.Helper()
			synctest.Wait()
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				name := strings.TrimPrefix(f.GetName(), "workqueue_")
				if len(f.Metric) != 1 || f.Metric[0].Label[0].GetValue() != "sleeper" {
					t.Fatalf("%s: %v", name, f.Metric)
				}
				got := f.Metric[0].GetGauge().GetValue() + f.Metric[0].GetCounter().GetValue() + f.Metric[0].GetHistogram().GetSampleSum()
				if n, ok := want[name]; !ok || got < n-.001 || got > n+.001 {
					t.Errorf("%s is %v, want %v", f.GetName(), got, n)
				}
			}
		}
		time.Sleep(500 * time.Millisecond)
		check(map[string]float64{
			"depth": 2, "adds_total": 3, "retries_total": 0, "queue_duration_seconds": 0, "work_duration_seconds": 0,
			"unfinished_work_seconds": .5, "longest_running_processor_seconds": .5,
		})
		time.Sleep(time.Minute)
		g.Stop()
		families, err := registry.Gather()
		if err != nil || len(families) != 7 {
			t.Fatalf("%d families, %v", len(families), err)
		}
		for _, f := range families {
			if f.GetName() == "workqueue_work_duration_seconds" {
				if h := f.Metric[0].GetHistogram(); h.GetSampleCount() != 4 || h.GetSampleSum() != 4 {
					t.Errorf("%d reconciles took %v s, want 4 and 4", h.GetSampleCount(), h.GetSampleSum())
				}
			}
			if f.GetName() == "workqueue_retries_total" && f.Metric[0].GetCounter().GetValue() != 1 {
				t.Errorf("retries: %v", f.Metric[0])
			}
		}
	})
}
