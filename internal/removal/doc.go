// Package removal removes directories that a hostile program may have filled.
//
// os.RemoveAll holds one descriptor per level: a program that nests directories deeply enough uses up the descriptors
// of the process that removes them, and the directory stays for ever.
package removal
