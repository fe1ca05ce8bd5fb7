//go:build embed

package demo

import (
	_ "embed"
	"unsafe"
)

// program is a string because bytes would stand among what can be written, whose pages
// the kernel can't be asked to forget.
//
//go:embed demo.bin
var program string

// Program returns the built-in demo program, and true: this program was built with
// it. The bytes are shared and must not be changed.
func Program() ([]byte, bool) {
	return unsafe.Slice(unsafe.StringData(program), len(program)), true // read-only, as New promises
}
