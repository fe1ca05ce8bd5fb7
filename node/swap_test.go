package node

import "testing"

func TestSwapIsOn(t *testing.T) {
	const head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	for list, want := range map[string]bool{"": false, head: false, head + "\n": false, head + "/dev/zram0 partition\t65532\t0\t-2\n": true} {
		if got := swapOn(list); got != want {
			t.Errorf("%q: %v", list, got)
		}
	}
}
