package plural

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int32]string{-1: "-1 pods", 0: "0 pods", 1: "1 pod", 2: "2 pods", 21: "21 pods"} {
		if got := Count(n, "pod"); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
	if got := Choose(1, "is", "are") + " " + Choose(2, "is", "are"); got != "is are" {
		t.Errorf("Choose = %q", got)
	}
}
