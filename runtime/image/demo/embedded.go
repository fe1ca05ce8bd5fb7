//go:build embed

package demo

import _ "embed"

//go:embed demo.bin
var program []byte

// Program returns the built-in demo program, and true: this program was built with
// it.
func Program() ([]byte, bool) { return program, true }
