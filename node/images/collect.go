package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/metrics"
)

// CollectOptions says when unused images are removed, with the meaning and the defaults of kubelet's configuration.
type CollectOptions struct {
	// HighPercent is the use of the images' file system at which images are removed (imageGCHighThresholdPercent), and
	// LowPercent the use that is the goal (imageGCLowThresholdPercent). Zero means 85 and 80. A HighPercent of 100 means
	// never.
	HighPercent, LowPercent int
	// MinAge is how long an image is kept after it was first seen (imageMinimumGCAge); 0 means 2 minutes.
	MinAge time.Duration
	// MaxAge is how long an unused image is kept (imageMaximumGCAge), however much space there is; 0 means for ever.
	MaxAge time.Duration
}

const (
	defaultHighPercent = 85
	defaultLowPercent  = 80
	defaultMinAge      = 2 * time.Minute

	// collectPeriod is the time between two collections, as in kubelets. One follows each pull as well.
	collectPeriod = 5 * time.Minute
)

func (o CollectOptions) check() (CollectOptions, error) {
	o.HighPercent, o.LowPercent = cmp.Or(o.HighPercent, defaultHighPercent), cmp.Or(o.LowPercent, min(defaultLowPercent, cmp.Or(o.HighPercent, defaultHighPercent)))
	o.MinAge = cmp.Or(o.MinAge, defaultMinAge)
	const whole = 100
	switch {
	case o.HighPercent < 0 || o.HighPercent > whole:
		return o, fmt.Errorf("image garbage collection: the high threshold must be 0 to 100 percent, got %d", o.HighPercent)
	case o.LowPercent < 0 || o.LowPercent > o.HighPercent:
		return o, fmt.Errorf("image garbage collection: the low threshold must be 0 percent to the high one (%d), got %d", o.HighPercent, o.LowPercent)
	case o.MinAge < 0 || o.MaxAge < 0:
		return o, errors.New("image garbage collection: ages must not be negative")
	}
	return o, nil
}

// An imageStore is a runtime that can remove images, and says where they are.
type imageStore interface {
	RemoveImage(ctx context.Context, image string) error
	// ImageDir returns the directory of the images.
	ImageDir(ctx context.Context) (string, error)
}

// diskSpace is the size of a file system and what is free of it, in bytes.
type diskSpace struct{ capacity, available int64 }

func spaceOf(dir string) (diskSpace, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return diskSpace{}, fmt.Errorf("space of %s: %w", dir, err)
	}
	return diskSpace{int64(s.Blocks * uint64(s.Bsize)), int64(s.Bavail * uint64(s.Bsize))}, nil
}

// seenImage is what a collector remembers of an image.
type seenImage struct {
	id       string
	size     int64
	pinned   bool
	used     bool
	detected time.Time // when it was first seen
	lastUsed time.Time // zero if it never was seen in use
}

// A collector decides which images to remove. It is used by one goroutine.
type collector struct {
	opts   CollectOptions
	began  time.Time
	dir    string // of the images; empty until known: to ask for it costs a walk over them
	images map[string]*seenImage
}

// observe takes in which images there are and which are used.
func (c *collector) observe(images []*cri.Image, used map[string]bool, now time.Time) {
	there := map[string]bool{}
	for _, i := range images {
		id := i.GetId()
		there[id] = true
		s := c.images[id]
		if s == nil {
			s = &seenImage{id: id, detected: now}
			c.images[id] = s
		}
		s.size, s.pinned, s.used = int64(i.GetSize()), i.GetPinned(), used[id]
		if s.used {
			s.lastUsed = now
		}
	}
	for id := range c.images {
		if !there[id] {
			delete(c.images, id)
		}
	}
}

// candidates returns the images that may be removed, the one that was not used for longest first.
func (c *collector) candidates() []*seenImage {
	var list []*seenImage
	for _, s := range c.images {
		if !s.used && !s.pinned {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *seenImage) int {
		return cmp.Or(a.lastUsed.Compare(b.lastUsed), a.detected.Compare(b.detected), cmp.Compare(a.id, b.id))
	})
	return list
}

// old returns the images that have not been used for MaxAge.
func (c *collector) old(now time.Time) []*seenImage {
	if c.opts.MaxAge == 0 || now.Sub(c.began) <= c.opts.MaxAge {
		return nil // the agent has not seen enough of them
	}
	return slices.DeleteFunc(c.candidates(), func(s *seenImage) bool { return now.Sub(s.lastUsed) <= c.opts.MaxAge })
}

// excess returns how many bytes to free, and the use in percent; 0 bytes if it is below the threshold.
func (c *collector) excess(d diskSpace) (bytes int64, percent int) {
	const whole = 100
	d.available = min(d.available, d.capacity)
	percent = whole - int(d.available*whole/d.capacity)
	if percent < c.opts.HighPercent {
		return 0, percent
	}
	return d.capacity*int64(whole-c.opts.LowPercent)/whole - d.available, percent
}

// Collect removes unused images until ctx is over: at the start, after each pull, and every few minutes.
func (m *Manager) Collect(ctx context.Context) error {
	store, ok := m.node.Runtime.(imageStore)
	o := m.opts.Collect
	if never := 100; !ok || o.HighPercent == never && o.MaxAge == 0 {
		<-ctx.Done()
		return nil
	}
	c := &collector{opts: o, began: time.Now(), images: map[string]*seenImage{}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-m.done:
		case <-timer.C:
		}
		timer.Reset(collectPeriod)
		err := m.collectOnce(ctx, store, c, time.Now())
		switch {
		case ctx.Err() != nil:
		case err == nil:
			failures = 0
		default:
			m.node.Log.Warn("image garbage collection failed", "err", err)
			if failures++; failures > 1 {
				m.node.Event(corev1.EventTypeWarning, "ImageGCFailed", "%v", err)
			}
		}
	}
}

// collectOnce removes images that are too old, and others if the disk is too full.
func (m *Manager) collectOnce(ctx context.Context, store imageStore, c *collector, now time.Time) error {
	used, err := m.usedImages(ctx)
	if err != nil {
		return err
	}
	present, err := m.node.Runtime.ListImages(ctx)
	if err != nil {
		return err
	}
	c.observe(present, used, now)
	for _, s := range c.old(now) {
		if err := m.removeImage(ctx, store, c, s, metrics.BecauseOfAge); err != nil {
			return fmt.Errorf("wanted to free images older than %v, encountered errors in image deletion: %w", c.opts.MaxAge, err)
		}
	}
	if c.dir == "" {
		if c.dir, err = store.ImageDir(ctx); err != nil {
			return err
		}
	}
	space, err := spaceOf(c.dir)
	if err != nil {
		return err
	}
	if space.capacity == 0 {
		err := errors.New("invalid capacity 0 on image filesystem")
		m.node.Event(corev1.EventTypeWarning, "InvalidDiskCapacity", "%v", err)
		return err
	}
	return m.freeSpace(ctx, store, c, space, now)
}

// freeSpace removes images until the use of the disk is at the low threshold.
func (m *Manager) freeSpace(ctx context.Context, store imageStore, c *collector, space diskSpace, now time.Time) error {
	excess, percent := c.excess(space)
	if excess <= 0 {
		return nil
	}
	m.node.Log.Info("disk of images is over the high threshold, removing unused images",
		"usedPercent", percent, "highPercent", c.opts.HighPercent, "lowPercent", c.opts.LowPercent, "bytesToFree", excess, "available", sizeText(space.available), "capacity", sizeText(space.capacity))
	var freed int64
	var errs []error
	for _, s := range c.candidates() {
		if freed >= excess {
			break
		}
		if now.Sub(s.detected) < c.opts.MinAge {
			continue // it may have been pulled for a container that is about to start
		}
		if err := m.removeImage(ctx, store, c, s, metrics.BecauseOfSpace); err != nil {
			errs = append(errs, err)
			continue
		}
		freed += s.size
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("wanted to free %d bytes, but freed %d bytes space with errors in image deletion: %w", excess, freed, err)
	}
	m.pruneRecords(c, now)
	if freed >= excess {
		return nil
	}
	message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
		"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.", percent, sizeText(space.capacity), freed)
	m.node.Event(corev1.EventTypeWarning, "FreeDiskSpaceFailed", "%s", message)
	return errors.New(message)
}

// pruneRecords removes the records about images that are gone.
func (m *Manager) pruneRecords(c *collector, now time.Time) {
	if m.records == nil {
		return
	}
	var left []string
	for id := range c.images {
		left = append(left, id)
	}
	if err := m.records.Prune(left, now); err != nil {
		m.node.Log.Warn("records of removed images not removed", "err", err)
	}
}

func (m *Manager) removeImage(ctx context.Context, store imageStore, c *collector, s *seenImage, reason string) error {
	m.node.Log.Info("removing an unused image", "image", s.id, "bytes", s.size)
	if err := store.RemoveImage(ctx, s.id); err != nil {
		return err
	}
	delete(c.images, s.id)
	m.node.Metrics.Collected.WithLabelValues(reason).Inc()
	return nil
}

// usedImages returns the ids of the images that containers or volumes of pods use.
func (m *Manager) usedImages(ctx context.Context) (map[string]bool, error) {
	containers, err := m.node.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, c := range containers {
		used[c.GetImageRef()], used[c.GetImage().GetImage()], used[c.GetImageId()] = true, true, true
	}
	var references []string
	for _, pod := range m.node.Pods() {
		references = append(references, OfVolumes(pod)...)
	}
	for _, ref := range references {
		if image, err := m.node.Runtime.ImageStatus(ctx, ref); err == nil && image != nil {
			used[image.GetId()] = true
		}
	}
	return used, nil
}

// sizeText formats a number of bytes as kubelets do.
func sizeText(bytes int64) string {
	const step = 1024
	size, units := float64(bytes), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for size >= step && len(units) > 1 {
		size, units = size/step, units[1:]
	}
	if units[0] == "B" {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", size, units[0])
}
