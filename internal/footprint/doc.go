// Package footprint computes how much memory a value takes.
//
// The memory of a decoded object can be many times that of its encoding: an empty element of a list takes two bytes of
// protobuf and a hundred as a struct. [Of] counts what the garbage collector keeps for the value: the value itself and
// everything that it points to, in whole bytes, without the rounding of the allocator. What several pointers share is
// counted for each of them, so the result is an upper bound.
//
// Each type is looked at once: fields that hold no pointers cost nothing in a walk, so the time is linear in the number
// of strings, slices, maps and pointers of the value.
package footprint
