package session

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// An Input is what flags and arguments say about objects. The zero value says nothing.
type Input struct {
	files         []string
	recursive     bool
	kustomize     string
	Labels        string
	Fields        string
	All           bool
	AllNamespaces bool
	Lazy          bool
}

// FileFlags gives a verb -f, -R and -k.
func (in *Input) FileFlags(f *pflag.FlagSet) {
	f.VarP((*fileNames)(&in.files), "filename", "f", "file, directory, glob pattern or URL with YAML or JSON objects; - means standard input")
	f.BoolVarP(&in.recursive, "recursive", "R", false, "read the directories given with -f recursively")
	f.StringVarP(&in.kustomize, "kustomize", "k", "", "kustomization directory; cannot be used together with -f or -R")
}

// fileNames is the value of a flag that may be given several times, or once with names
// separated by commas.
type fileNames []string

func (f *fileNames) String() string { return strings.Join(*f, ",") }
func (f *fileNames) Type() string   { return "strings" }

// Set implements pflag.Value.
func (f *fileNames) Set(text string) error {
	*f = append(*f, strings.Split(text, ",")...)
	return nil
}

// Given reports whether objects were given with -f or -k.
func (in *Input) Given() bool { return len(in.files) > 0 || in.kustomize != "" }

// File returns the one file of -f, "-" for the standard input, or an error for anything else. Verb is the flag that wants
// it.
func (in *Input) File(verb string) (string, error) {
	switch {
	case len(in.files) != 1 || in.kustomize != "":
		return "", fmt.Errorf("%s can only use a single local file or stdin", verb)
	case strings.HasPrefix(in.files[0], "http://") || strings.HasPrefix(in.files[0], "https://"):
		return "", fmt.Errorf("%s cannot read from a url", verb)
	case in.recursive:
		return "", fmt.Errorf("%s and --recursive are mutually exclusive", verb)
	}
	return in.files[0], nil
}

// SelectorFlags gives a verb -l, --field-selector and -A.
func (in *Input) SelectorFlags(f *pflag.FlagSet) {
	f.StringVarP(&in.Labels, "selector", "l", "", "label selector (a=b, a!=b, a in (b,c), a)")
	f.StringVar(&in.Fields, "field-selector", "", "field selector (metadata.name=x, status.phase!=Running)")
	f.BoolVarP(&in.AllNamespaces, "all-namespaces", "A", false, "work on objects in all namespaces")
}
