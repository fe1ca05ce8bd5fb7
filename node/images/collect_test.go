package images

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/metrics"
	"github.com/sampan-io/sampan/node/metrics/metricstest"
)

const gigabyte = 1 << 30

func collectorAt(t *testing.T, o CollectOptions, began time.Time) *collector {
	t.Helper()
	o, err := o.check()
	if err != nil {
		t.Fatal(err)
	}
	return &collector{opts: o, began: began, images: map[string]*seenImage{}}
}

func ids(list []*seenImage) (names []string) {
	for _, s := range list {
		names = append(names, s.id)
	}
	return names
}

func TestCollectorOrdersUnusedImages(t *testing.T) {
	t0 := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	c := collectorAt(t, CollectOptions{MaxAge: time.Hour}, t0)
	image := func(id string, pinned bool) *cri.Image { return &cri.Image{Id: id, Size: gigabyte, Pinned: pinned} }
	images := []*cri.Image{image("used", false), image("earlier", false), image("pinned", true), image("never", false)}
	c.observe(images, map[string]bool{"used": true, "earlier": true}, t0)
	c.observe(append(images, image("new", false)), map[string]bool{"used": true}, t0.Add(time.Minute))
	if got := ids(c.candidates()); !slices.Equal(got, []string{"never", "new", "earlier"}) {
		t.Errorf("candidates %v", got)
	}
	if got := c.old(t0.Add(time.Hour)); len(got) > 0 {
		t.Errorf("images are old before the agent has run for that long: %v", ids(got))
	}
	if got := ids(c.old(t0.Add(2 * time.Hour))); !slices.Equal(got, []string{"never", "new", "earlier"}) {
		t.Errorf("old images %v", got)
	}
	c.observe(images[:1], nil, t0)
	if len(c.images) != 1 {
		t.Errorf("%d images are remembered", len(c.images))
	}
}

func TestCollectorFreesDownToTheLowThreshold(t *testing.T) {
	c := collectorAt(t, CollectOptions{}, time.Time{})
	for available, want := range map[int64]int64{16: 0, 15: 5, 5: 15, 200: 0} {
		if got, _ := c.excess(diskSpace{100 * gigabyte, available * gigabyte}); got != want*gigabyte {
			t.Errorf("%d of 100 GB free: to free %d, want %d GB", available, got, want)
		}
	}
	for _, o := range []CollectOptions{{HighPercent: 101}, {HighPercent: 50, LowPercent: 60}, {MinAge: -1}} {
		if _, err := o.check(); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// fakeImages is a runtime that only has images.
type fakeImages struct{ removed []string }

func (f *fakeImages) RemoveImage(_ context.Context, image string) error {
	f.removed = append(f.removed, image)
	return nil
}

func (f *fakeImages) ImageDir(context.Context) (string, error) { return "/", nil }

func TestCollectionKeepsYoungImages(t *testing.T) {
	t0 := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	counts := metrics.New()
	n := &Manager{node: Node{Event: func(string, string, string, ...any) {}, Metrics: counts.Images, Log: slog.New(slog.DiscardHandler)}}
	f := &fakeImages{}
	c := collectorAt(t, CollectOptions{}, t0)
	c.observe([]*cri.Image{{Id: "a", Size: 3 * gigabyte}, {Id: "b", Size: 3 * gigabyte}, {Id: "c", Size: 3 * gigabyte}}, nil, t0)
	c.observe([]*cri.Image{{Id: "a", Size: 3 * gigabyte}, {Id: "b", Size: 3 * gigabyte}, {Id: "c", Size: 3 * gigabyte}, {Id: "young", Size: 9 * gigabyte}}, nil, t0.Add(time.Hour))
	full := diskSpace{100 * gigabyte, 15 * gigabyte} // 5 GB are to be freed
	if err := n.freeSpace(t.Context(), f, c, full, t0.Add(time.Hour)); err != nil || !slices.Equal(f.removed, []string{"a", "b"}) {
		t.Errorf("removed %v: %v", f.removed, err)
	}
	err := n.freeSpace(t.Context(), f, c, full, t0.Add(time.Hour))
	const want = "Insufficient free disk space on the node's image filesystem (85% of 100.0 GiB used). Failed to free sufficient space by deleting unused images (freed 3221225472 bytes). " +
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
	if err == nil || err.Error() != want || !slices.Equal(f.removed, []string{"a", "b", "c"}) {
		t.Errorf("removed %v: %v", f.removed, err)
	}
	if got := metricstest.Sum(t, counts.Registry, "kubelet_image_garbage_collected_total", map[string]string{"reason": "space"}); got != 3 {
		t.Errorf("images removed for space by the metrics: %v, want 3", got)
	}
}
