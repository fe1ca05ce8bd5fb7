package node

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sliceOf reads "REVISION UID=CONDITIONS…", where the conditions are r(eady) and
// t(erminating).
func sliceOf(text string) *discoveryv1.EndpointSlice {
	words := strings.Fields(text)
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{ResourceVersion: words[0]}}
	for _, w := range words[1:] {
		uid, conditions, _ := strings.Cut(w, "=")
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			TargetRef:  &corev1.ObjectReference{UID: types.UID(uid)},
			Conditions: discoveryv1.EndpointConditions{Ready: new(strings.Contains(conditions, "r")), Terminating: new(strings.Contains(conditions, "t"))},
		})
	}
	return s
}

func TestDeparts(t *testing.T) {
	tests := []struct {
		name     string
		services []string // slices separated by "|"; "+" in front says that another pod is coming
		proxies  map[string]uint64
		want     departure
		missing  string
	}{
		{"every proxy has applied it", []string{"7 me=t other=r"}, map[string]uint64{"a": 7, "b": 9}, departed, ""},
		{"one has not", []string{"7 me=t other=r"}, map[string]uint64{"a": 7, "b": 6}, awaited, "b"},
		{"there is no proxy that would say it", []string{"7 me=t other=r"}, nil, unknown, ""},
		{"the deletion is not seen yet", []string{"7 me=r other=r"}, map[string]uint64{"a": 7}, awaited, ""},
		{"it is in no slice", []string{"7 other=r"}, map[string]uint64{"a": 7}, unknown, ""},
		{"there are no slices", []string{""}, map[string]uint64{"a": 7}, unknown, ""},
		{"others are in another slice, which changed later", []string{"7 me=t|9 other=r"}, map[string]uint64{"a": 8}, awaited, "a"},
		{"it is the last one", []string{"7 me=t other=t"}, map[string]uint64{"a": 7}, unknown, ""},
		{"it is the last one, and one comes", []string{"7 me=t other="}, map[string]uint64{"a": 7}, awaited, ""},
		{"it is the last one, and one comes without an address yet", []string{"+7 me=t"}, map[string]uint64{"a": 7}, awaited, ""},
		{"another comes, and others serve", []string{"+7 me=t other=r third="}, map[string]uint64{"a": 7}, departed, ""},
		{"out of one service of two", []string{"7 me=t other=r", "8 me=r other=r"}, map[string]uint64{"a": 8}, awaited, ""},
		{"out of both", []string{"7 me=t other=r", "8 me=t other=r"}, map[string]uint64{"a": 8}, departed, ""},
		{"two proxies are missing for two services", []string{"7 me=t other=r", "9 me=t other=r"}, map[string]uint64{"b": 6, "a": 8}, awaited, "a b"},
		{"a proxy has seen more than we", []string{"7 me=t other=r"}, map[string]uint64{"a": 10}, awaited, ""},
		{"a proxy has seen more than we, of a pod without services", nil, map[string]uint64{"a": 10}, departed, ""},
		{"revisions that are no numbers", []string{"x me=t other=r"}, map[string]uint64{"a": 7}, unknown, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var services []behind
			for _, text := range tt.services {
				var b behind
				text, b.coming = strings.CutPrefix(text, "+")
				for _, s := range slices.DeleteFunc(strings.Split(text, "|"), func(s string) bool { return s == "" }) {
					b.slices = append(b.slices, sliceOf(s))
				}
				services = append(services, b)
			}
			got, missing := departs("me", services, tt.proxies, 9)
			if got != tt.want || strings.Join(missing, " ") != tt.missing {
				t.Errorf("departs = %v, %v, want %v, %q", got, missing, tt.want, tt.missing)
			}
		})
	}
}
