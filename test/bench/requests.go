package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	clients = 32
	turn    = 700 * time.Millisecond
	turns   = 7
)

// requests measures requests a second with 32 clients, beside a Go server in a process
// of its own that answers the same requests over TLS and HTTP/2 with nothing behind
// it. Load and server share the machine in both.
func (b *bench) requests(ctx context.Context) error {
	ours, err := b.ours()
	if err != nil {
		return err
	}
	bare, err := startBare(ctx)
	if err != nil {
		return err
	}
	defer bare.stop()
	configMap, err := json.Marshal(&corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"},
		Data: map[string]string{"value": strings.Repeat("x", 200)},
	})
	if err != nil {
		return err
	}
	one, err := json.Marshal(namedPod("one"))
	if err != nil {
		return err
	}
	pod, err := json.Marshal(largePod())
	if err != nil {
		return err
	}
	if _, err := ours.send(ctx, podsPath, "", one); err != nil {
		return err
	}
	for _, t := range []struct {
		what, path string
		body       []byte
		goal       string
	}{
		{"durable create of a 300-byte ConfigMap", "/api/v1/namespaces/default/configmaps", configMap, ">= 10,000/s"},
		{"durable create of a 2.6 KB Pod", podsPath, pod, ">= 6,000/s"},
		{"GET of a pod", podsPath + "/one", nil, ">= 0.80"},
	} {
		got, floor, err := compare(ctx, ours, &bare.server, t.path, t.body)
		if err != nil {
			return err
		}
		b.row(t.what+", 32 clients", fmt.Sprintf("%.0f/s", got.rate), fmt.Sprintf("%.0f/s", floor.rate), fmt.Sprintf("%.2f", got.rate/floor.rate), t.goal)
		b.row("  CPU of the server for one", fmt.Sprintf("%.0f µs", got.cpu), fmt.Sprintf("%.0f µs", floor.cpu), fmt.Sprintf("%.2f", got.cpu/floor.cpu), "")
	}
	return nil
}

const podsPath = "/api/v1/namespaces/default/pods"

// A throughput is what a server did: requests a second, and microseconds of its CPU
// for each. The second depends less on who else uses the machine.
type throughput struct{ rate, cpu float64 }

// compare loads both servers in turn, in short turns, so that what else the machine does
// hits both, and returns the medians.
func compare(ctx context.Context, ours, bare *server, path string, body []byte) (got, floor throughput, err error) {
	var rates, cpus [2][]float64
	for i := range turns + 1 {
		for k, s := range []*server{bare, ours} {
			t, err := s.load(ctx, path, body)
			if err != nil {
				return got, floor, err
			}
			if i > 0 { // the first turn warms up
				rates[k], cpus[k] = append(rates[k], t.rate), append(cpus[k], t.cpu)
			}
		}
	}
	return throughput{median(rates[1]), median(cpus[1])}, throughput{median(rates[0]), median(cpus[0])}, nil
}

// largePod is one that no scheduler takes, of about 2.6 KB.
func largePod() *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "p-", Labels: map[string]string{"app": "bench"}, Annotations: map[string]string{"note": strings.Repeat("y", 400)},
		},
		Spec: corev1.PodSpec{
			SchedulerName: "nobody",
			Containers: []corev1.Container{{
				Name: "main", Image: "example.com/image:v1",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}},
			}},
		},
	}
	for i := range 12 {
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i), Value: strings.Repeat("z", 60)})
	}
	return p
}

func namedPod(name string) *corev1.Pod {
	p := largePod()
	p.GenerateName, p.Name = "", name
	return p
}

// ours is the API server, asked as its administrator.
func (b *bench) ours() (*server, error) {
	cfg, err := b.config()
	if err != nil {
		return nil, err
	}
	transport := func() http.RoundTripper {
		// Not rest.TransportFor, which hands out one transport for equal configurations.
		tlsConfig, err := rest.TLSConfigFor(cfg)
		if err != nil {
			panic(err) // BuildConfigFromFlags has read the same
		}
		return &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}
	}
	pids, err := b.instance()
	if err != nil {
		return nil, err
	}
	return &server{pid: pids[0], url: cfg.Host, client: &http.Client{Transport: transport()}, transport: transport}, nil
}

// load lets 32 clients send the same request over and over for a turn.
func (s *server) load(ctx context.Context, path string, body []byte) (throughput, error) {
	before, _, err := usage([]int{s.pid})
	if err != nil {
		return throughput{}, err
	}
	var (
		done  atomic.Int64
		group errgroup.Group
	)
	began := time.Now()
	for range clients {
		group.Go(func() error {
			for time.Since(began) < turn {
				if _, err := s.send(ctx, path, "", body); err != nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
	}
	err = group.Wait()
	took := time.Since(began)
	after, _, usageErr := usage([]int{s.pid})
	n := float64(done.Load())
	return throughput{rate: n / took.Seconds(), cpu: float64(after-before) / ticksPerSecond * 1e6 / n}, errors.Join(err, usageErr)
}
