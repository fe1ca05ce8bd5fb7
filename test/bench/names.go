package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bareNamesVerb makes this program the floor under the name server: the library's own
// server, with one record and nothing to look up.
const bareNamesVerb = "bare-names"

// serveBareNames answers until its standard input ends. It says its address first.
func serveBareNames(context.Context) error {
	p, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &dns.Server{PacketConn: p, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		r := new(dns.Msg).SetReply(q)
		r.Compress = true
		r.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5}, A: net.IP{10, 96, 0, 1}}}
		_ = w.WriteMsg(r)
	})}
	go func() { _ = s.ActivateAndServe() }()
	fmt.Println(p.LocalAddr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, s.Shutdown())
}

const (
	manyServices = 10_000
	nameClients  = 16
	nameServer   = "127.0.0.1:5399"
)

// names measures the name server alone, as a process of its own beside the cluster: how
// much memory it takes for many services, each with an endpoint, and how many questions about them it
// answers.
func (b *bench) names(ctx context.Context) error {
	ours, stop, err := b.startNames(ctx)
	if err != nil {
		return err
	}
	defer stop()
	settle := 10 * time.Second // memory is given back when it is quiet
	if err := pause(ctx, settle); err != nil {
		return err
	}
	empty, err := memory([]int{ours.pid})
	if err != nil {
		return err
	}
	if err := b.makeServices(ctx, manyServices); err != nil {
		return err
	}
	questions := make([][]byte, manyServices)
	for i := range questions {
		if questions[i], err = new(dns.Msg).SetQuestion(fmt.Sprintf("s-%d.default.svc.cluster.local.", i), dns.TypeA).Pack(); err != nil {
			return err
		}
	}
	if err := ours.known(ctx, questions); err != nil {
		return err
	}
	if err := pause(ctx, settle); err != nil {
		return err
	}
	full, err := memory([]int{ours.pid})
	if err != nil {
		return err
	}
	b.row("DNS: memory of 10,000 services (PSS)", fmt.Sprintf("%.1f MiB", float64(full-empty)/(1<<20)), "", "", "<= 20 MiB")
	b.row("  of an empty one, alone", fmt.Sprintf("%.1f MiB", float64(empty)/(1<<20)), "", "", "")

	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, bareNamesVerb)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait()
	}()
	var at string
	if _, err := fmt.Fscanln(out, &at); err != nil {
		return fmt.Errorf("the bare name server did not start: %w", err)
	}
	return b.compareNames(ctx, ours, &answerer{pid: cmd.Process.Pid, at: at}, questions)
}

// compareNames loads both in turn and prints medians.
func (b *bench) compareNames(ctx context.Context, ours, bare *answerer, questions [][]byte) error {
	var rates, cpus [2][]float64
	var middles, lates [2][]time.Duration
	for i := range turns + 1 {
		for k, s := range []*answerer{bare, ours} {
			rate, cpu, took, err := s.load(ctx, questions)
			if err != nil {
				return err
			}
			if i > 0 { // the first turn warms up
				rates[k], cpus[k] = append(rates[k], rate), append(cpus[k], cpu)
				middles[k], lates[k] = append(middles[k], quantile(took, 0.5)), append(lates[k], quantile(took, 0.99))
			}
		}
	}
	per := func(k int) float64 { return 1e6 / median(cpus[k]) }
	b.row("DNS: names of services, 16 clients", fmt.Sprintf("%.0f/s", median(rates[1])), fmt.Sprintf("%.0f/s", median(rates[0])), fmt.Sprintf("%.2f", median(rates[1])/median(rates[0])), "")
	b.row("  per core of the server", fmt.Sprintf("%.0f/s", per(1)), fmt.Sprintf("%.0f/s", per(0)), fmt.Sprintf("%.2f", per(1)/per(0)), ">= 30,000/s")
	us := func(d time.Duration) string { return fmt.Sprintf("%d µs", d.Microseconds()) }
	for _, row := range []struct {
		what string
		took [2][]time.Duration
	}{{"  until the answer, p50", middles}, {"  until the answer, p99", lates}} {
		mine, floor := median(row.took[1]), median(row.took[0])
		b.row(row.what, us(mine), us(floor), fmt.Sprintf("%.2f", float64(mine)/float64(floor)), "")
	}
	return nil
}

// startNames runs the name server alone.
func (b *bench) startNames(ctx context.Context) (*answerer, func(), error) {
	cmd := exec.CommandContext(ctx, b.program, "--kubeconfig="+filepath.Join(b.data(), "admin.kubeconfig"), "dns", "--listen="+nameServer, "--cluster-dns-upstream=none")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop := func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}
	s := &answerer{pid: cmd.Process.Pid, at: nameServer}
	question, err := new(dns.Msg).SetQuestion("kubernetes.default.svc.cluster.local.", dns.TypeA).Pack()
	if err == nil {
		err = s.known(ctx, [][]byte{question})
	}
	if err != nil {
		stop()
		return nil, nil, fmt.Errorf("the name server: %w: %s", err, strings.TrimSpace(errs.String()))
	}
	return s, stop, nil
}

// makeServices makes so many services, and an EndpointSlice of each.
func (b *bench) makeServices(ctx context.Context, n int) error {
	api, err := b.ours()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(clients)
	port, name := int32(80), "http"
	for i := range n {
		group.Go(func() error {
			meta := metav1.ObjectMeta{Name: fmt.Sprintf("s-%d", i)}
			svc, err := json.Marshal(&corev1.Service{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta,
				Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: name, Port: port}}},
			})
			if err != nil {
				return err
			}
			if _, err := api.send(ctx, "/api/v1/namespaces/default/services", "", svc); err != nil {
				return err
			}
			meta.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
			slice, err := json.Marshal(&discoveryv1.EndpointSlice{
				TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, ObjectMeta: meta,
				AddressType: discoveryv1.AddressTypeIPv4,
				Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
				Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250)}}},
			})
			if err != nil {
				return err
			}
			_, err = api.send(ctx, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", "", slice)
			return err
		})
	}
	return group.Wait()
}

// An answerer is a name server in a process of its own.
type answerer struct {
	pid int
	at  string
}

// A lost packet would be waited for until here; nothing takes that long.
const nameTimeout = 5 * time.Second

// known waits until there is an answer to each question.
func (s *answerer) known(ctx context.Context, questions [][]byte) error {
	deadline := time.Now().Add(time.Minute)
	c, err := net.Dial("udp", s.at)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, q := range questions {
		for {
			err := askName(c, q, make([]byte, 512))
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return err
			}
			if err := pause(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// askName asks once and checks that there is one answer.
func askName(c net.Conn, question, into []byte) error {
	if err := c.SetDeadline(time.Now().Add(nameTimeout)); err != nil {
		return err
	}
	if _, err := c.Write(question); err != nil {
		return err
	}
	n, err := c.Read(into)
	if err != nil {
		return err
	}
	if n < 12 || into[0] != question[0] || into[1] != question[1] || into[3]&0xf != dns.RcodeSuccess || binary.BigEndian.Uint16(into[6:]) != 1 {
		return fmt.Errorf("the answer is %x", into[:n])
	}
	return nil
}

// load asks for a turn, each client one question after the other, and returns questions a second,
// microseconds of the server's CPU for each, and how long they took.
func (s *answerer) load(ctx context.Context, questions [][]byte) (rate, cpu float64, took []time.Duration, err error) {
	before, _, err := usage([]int{s.pid})
	if err != nil {
		return 0, 0, nil, err
	}
	began := time.Now()
	until := began.Add(turn)
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for range nameClients {
		group.Go(func() error {
			c, err := net.Dial("udp", s.at)
			if err != nil {
				return err
			}
			defer c.Close()
			into := make([]byte, 512)
			mine := make([]time.Duration, 0, 10_000)
			for time.Now().Before(until) && ctx.Err() == nil {
				question := slices.Clone(questions[rand.IntN(len(questions))])
				binary.BigEndian.PutUint16(question, uint16(rand.Uint32()))
				sent := time.Now()
				if err := askName(c, question, into); err != nil {
					return err
				}
				mine = append(mine, time.Since(sent))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, 0, nil, err
	}
	passed := time.Since(began)
	after, _, err := usage([]int{s.pid})
	if err != nil {
		return 0, 0, nil, err
	}
	n := float64(len(took))
	return n / passed.Seconds(), float64(after-before) / ticksPerSecond * 1e6 / n, took, nil
}
