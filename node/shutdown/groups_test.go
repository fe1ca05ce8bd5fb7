package shutdown_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/sampan-io/sampan/node/shutdown"
)

func seconds(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Second} }

func TestPeriodsComeFromTheConfiguration(t *testing.T) {
	tests := []struct {
		name string
		conf kubelet.KubeletConfiguration
		want string
	}{
		{"none", kubelet.KubeletConfiguration{}, "[]"},
		{"critical alone is none", kubelet.KubeletConfiguration{ShutdownGracePeriodCriticalPods: seconds(5)}, "[]"},
		{"two", kubelet.KubeletConfiguration{ShutdownGracePeriod: seconds(30), ShutdownGracePeriodCriticalPods: seconds(10)}, "[{0 20s} {2000000000 10s}]"},
		{"whole seconds", kubelet.KubeletConfiguration{ShutdownGracePeriod: metav1.Duration{Duration: 2500 * time.Millisecond}}, "[{0 2s} {2000000000 0s}]"},
		{"by priority, sorted", kubelet.KubeletConfiguration{ShutdownGracePeriodByPodPriority: []kubelet.ShutdownGracePeriodByPodPriority{
			{Priority: 100, ShutdownGracePeriodSeconds: 3}, {Priority: -5, ShutdownGracePeriodSeconds: 1},
		}}, "[{-5 1s} {100 3s}]"},
	}
	for _, tt := range tests {
		if got := fmt.Sprint(shutdown.Periods(&tt.conf)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if total := shutdown.Total(shutdown.Periods(&tests[2].conf)); total != 30*time.Second {
		t.Errorf("total is %v", total)
	}
}

func TestGroupsAreByPriority(t *testing.T) {
	pod := func(name string, priority int32, grace int64) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Priority: &priority, TerminationGracePeriodSeconds: &grace}}
		p.Name = name
		return p
	}
	none := &corev1.Pod{}
	none.Name = "none"
	periods := []shutdown.Period{{-10, 4 * time.Second}, {0, 10 * time.Second}, {50, 20 * time.Second}, {100, 0}}
	pods := []*corev1.Pod{pod("lowest", -100, 30), pod("exact", 0, 3), none, pod("below", 99, 20), pod("critical", 2_000_001_000, 30)}
	var got []string
	for _, g := range shutdown.Groups(periods, pods) {
		line := fmt.Sprint(g.Priority, ":")
		for _, p := range g.Pods {
			line += fmt.Sprintf(" %s %v", p.Name, g.Grace(p))
		}
		got = append(got, line)
	}
	want := "-10: lowest 4s|0: exact 3s none 10s|50: below 20s|100: critical 0s"
	if strings.Join(got, "|") != want {
		t.Errorf("groups are %s, want %s", strings.Join(got, "|"), want)
	}
	if len(shutdown.Groups(nil, pods)) != 0 {
		t.Error("there are groups without periods")
	}
}
