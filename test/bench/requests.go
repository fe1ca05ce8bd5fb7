package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	clients = 32
	period  = 4 * time.Second
)

// requests measures requests a second with 32 clients, beside a Go server that
// answers the same requests over TLS and HTTP/2 with nothing behind it. Load and
// server share the machine in both.
func (b *bench) requests(ctx context.Context) error {
	cfg, err := b.config()
	if err != nil {
		return err
	}
	host := &http.Client{}
	if host.Transport, err = rest.TransportFor(cfg); err != nil {
		return err
	}
	var answer atomic.Pointer[[]byte]
	bare := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(*answer.Load())
	}))
	bare.EnableHTTP2 = true
	bare.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	bare.StartTLS()
	defer bare.Close()

	configMap, err := json.Marshal(&corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"},
		Data: map[string]string{"value": strings.Repeat("x", 200)},
	})
	if err != nil {
		return err
	}
	pod, err := json.Marshal(largePod())
	if err != nil {
		return err
	}
	answer.Store(&pod)
	for _, t := range []struct {
		what, path string
		body       []byte
		goal       string
	}{
		{"durable create of a 300-byte ConfigMap", "/api/v1/namespaces/default/configmaps", configMap, ">= 10,000/s"},
		{"durable create of a 2.6 KB Pod", "/api/v1/namespaces/default/pods", pod, ">= 6,000/s"},
		{"GET of a pod", "/api/v1/namespaces/default/pods/one", nil, ">= 80 % of the floor"},
	} {
		if t.body == nil {
			if err := createNamed(ctx, host, cfg.Host); err != nil {
				return err
			}
		}
		floor, err := load(ctx, bare.Client(), bare.URL+t.path, t.body)
		if err != nil {
			return err
		}
		got, err := load(ctx, host, cfg.Host+t.path, t.body)
		if err != nil {
			return err
		}
		b.row(t.what+", 32 clients", fmt.Sprintf("%.0f/s", got), fmt.Sprintf("%.0f/s", floor), fmt.Sprintf("%.2f", got/floor), t.goal)
	}
	return nil
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

func createNamed(ctx context.Context, c *http.Client, host string) error {
	p := largePod()
	p.GenerateName, p.Name = "", "one"
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return send(ctx, c, host+"/api/v1/namespaces/default/pods", body)
}

func send(ctx context.Context, c *http.Client, url string, body []byte) error {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, text)
	}
	return err
}

// load returns the requests a second that 32 clients get answered.
func load(ctx context.Context, c *http.Client, url string, body []byte) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, period)
	defer cancel()
	var (
		done  atomic.Int64
		once  sync.Once
		first error
		wg    sync.WaitGroup
	)
	began := time.Now()
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				err := send(ctx, c, url, body)
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					once.Do(func() { first = err })
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(done.Load()) / time.Since(began).Seconds(), first
}
