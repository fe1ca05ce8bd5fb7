//go:build !linux || portable

package clusters

import (
	"errors"

	"github.com/sampan-io/sampan/cluster/local"
)

// checkSurroundings says that there can be no real node on this system. instead is what the user can do instead, such as
// [simulate], or "".
func checkSurroundings(s local.Settings, instead string) error {
	if s.Simulated() {
		return nil
	}
	if instead != "" {
		instead = "; use " + instead
	}
	return errors.New("a real node needs Linux" + instead)
}
