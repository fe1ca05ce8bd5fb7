package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes/scheme"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// burst measures the memory of the server during, right after and some time after 10,000 creates of pods, in JSON and
// in protobuf, with watches of both encodings, and lists of all of them.
func (b *bench) burst(ctx context.Context) error {
	const many, watchers, connections, lists = 10_000, 20, 4, 40
	ours, err := b.ours()
	if err != nil {
		return err
	}
	idle, err := b.serverMemory()
	if err != nil {
		return err
	}
	var streams []*http.Response
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, accept := range []string{"application/json", protobuf + ";stream=watch"} {
		path := podsPath + "?watch=true"
		more, err := openAs(watching, ours, path, accept, watchers/2, connections/2)
		if err != nil {
			return err
		}
		streams = append(streams, more...)
	}
	var readers errgroup.Group
	for _, s := range streams {
		readers.Go(func() error {
			_, err := io.Copy(io.Discard, s.Body)
			if watching.Err() != nil {
				return nil
			}
			return errors.Join(errors.New("a watch ended"), err)
		})
	}
	m := b.meter(ctx)
	if err := createMany(ctx, ours, many/2); err != nil {
		return err
	}
	if err := createManyProtobuf(ctx, ours, many/2); err != nil {
		return err
	}
	var group errgroup.Group
	for i := range 4 {
		group.Go(func() error {
			for k := range lists / 4 {
				accept := []string{"application/json", protobuf}[(i+k)%2]
				if _, err := ours.send(ctx, podsPath, accept, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	last, err := b.serverMemory()
	if err == nil {
		err = pause(ctx, 1500*time.Millisecond) // it is given back within a second
	}
	if err != nil {
		return err
	}
	after, err := b.serverMemory()
	if err != nil {
		return err
	}
	if err := pause(ctx, 45*time.Second); err != nil {
		return err
	}
	later, err := b.serverMemory()
	if err != nil {
		return err
	}
	cancel()
	for _, s := range streams {
		_ = s.Body.Close()
	}
	samples, err := m.stop()
	if err = errors.Join(err, readers.Wait()); err != nil {
		return err
	}
	b.row(fmt.Sprintf("memory of the server 1.5 s after %d pod creates and %d lists, with %d watches (PSS)",
		many, lists, watchers), mib(after), mib(idle), "", "<= 200 MiB")
	b.row("  with the last answer", mib(last), mib(idle), "", "")
	b.row("  at most meanwhile", mib(slices.Max(samples)), mib(idle), "", "")
	b.row("  and after 45 s", mib(later), mib(idle), "", "<= 120 MiB")
	return nil
}

// createManyProtobuf is [createMany] with protobuf.
func createManyProtobuf(ctx context.Context, s *server, n int64) error {
	info, ok := scheme.Codecs.SupportedMediaTypes(), false
	var body bytes.Buffer
	for _, i := range info {
		if i.MediaType == protobuf {
			ok = true
			if err := i.Serializer.Encode(largePod(), &body); err != nil {
				return err
			}
		}
	}
	if !ok {
		return errors.New("the library has no protobuf")
	}
	var made atomic.Int64
	var group errgroup.Group
	for range clients {
		group.Go(func() error {
			for made.Add(1) <= n {
				resp, err := s.do(ctx, s.client, http.MethodPost, podsPath, protobuf, protobuf, body.Bytes())
				if err != nil {
					return err
				}
				_, err = io.Copy(io.Discard, resp.Body)
				if err = errors.Join(err, resp.Body.Close()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// A meter samples the memory of the server twice a second.
type meter struct {
	stopped context.CancelFunc
	group   errgroup.Group
	samples []int64
}

func (b *bench) meter(ctx context.Context) *meter {
	m := &meter{}
	ctx, m.stopped = context.WithCancel(ctx)
	m.group.Go(func() error {
		for {
			now, err := b.serverMemory()
			if err != nil {
				return err
			}
			m.samples = append(m.samples, now)
			if pause(ctx, 500*time.Millisecond) != nil {
				return nil
			}
		}
	})
	return m
}

func (m *meter) stop() ([]int64, error) {
	m.stopped()
	err := m.group.Wait()
	return m.samples, err
}
