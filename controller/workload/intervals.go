package workload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// intervals is a set of completion indexes, as the status of a Job writes it:
// "1,3-5,7". It is sorted, and its intervals neither touch nor overlap.
type intervals [][2]int

// parseIntervals reads String's result. It stops at the first fault, as a set
// that lacks something only means that it is done again.
func parseIntervals(text string) (set intervals) {
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(last)
		if errA != nil || errB != nil || a > b || len(set) > 0 && a <= set[len(set)-1][1] {
			return set
		}
		if n := len(set); n > 0 && set[n-1][1]+1 == a {
			set[n-1][1] = b
		} else {
			set = append(set, [2]int{a, b})
		}
	}
	return set
}

// String writes two neighbours as two numbers, as upstream does.
func (s intervals) String() string {
	parts := make([]string, len(s))
	for i, r := range s {
		switch r[1] - r[0] {
		case 0:
			parts[i] = strconv.Itoa(r[0])
		case 1:
			parts[i] = fmt.Sprintf("%d,%d", r[0], r[1])
		default:
			parts[i] = fmt.Sprintf("%d-%d", r[0], r[1])
		}
	}
	return strings.Join(parts, ",")
}

func (s intervals) len() (n int) {
	for _, r := range s {
		n += r[1] - r[0] + 1
	}
	return n
}

func (s intervals) has(i int) bool {
	_, found := slices.BinarySearchFunc(s, i, func(r [2]int, i int) int {
		switch {
		case r[1] < i:
			return -1
		case r[0] > i:
			return 1
		}
		return 0
	})
	return found
}

// with returns the set with i in it; the set itself stays as it is.
func (s intervals) with(i int) intervals {
	if i < 0 || s.has(i) {
		return s
	}
	at, _ := slices.BinarySearchFunc(s, i, func(r [2]int, i int) int { return r[0] - i })
	joinsLeft := at > 0 && s[at-1][1] == i-1
	joinsRight := at < len(s) && s[at][0] == i+1
	out := slices.Clone(s)
	switch {
	case joinsLeft && joinsRight:
		out[at-1][1] = out[at][1]
		return slices.Delete(out, at, at+1)
	case joinsLeft:
		out[at-1][1] = i
	case joinsRight:
		out[at][0] = i
	default:
		out = slices.Insert(out, at, [2]int{i, i})
	}
	return out
}

// completionIndex returns the index of a pod of an Indexed job, or -1.
func completionIndex(pod *corev1.Pod) int {
	i, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || i < 0 {
		return -1
	}
	return i
}
