//go:build !embed

package demo

// Program returns nothing and false: this program was built without the tag
// "embed", so it brings no demo images.
func Program() ([]byte, bool) { return nil, false }
