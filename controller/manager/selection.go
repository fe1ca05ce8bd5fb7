package manager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Selection says which controllers run, as the values of kube-controller-manager's flag --controllers do: the name of a
// controller selects it, -NAME leaves it out, and * selects all that are on by default. The first value about a controller
// counts.
type Selection []string

// Parse returns the selection of a flag: values separated by commas. An empty text is an empty selection.
func Parse(text string) Selection {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// Check returns an error for each value that names no controller. Other names, with their aliases, are allowed as well.
func (s Selection) Check(others ...string) error {
	var names []string
	known := slices.Clone(others)
	for p := range all() {
		names, known = append(names, p.name), append(known, p.name, p.alias)
	}
	slices.Sort(names)
	names = append(names, others...)
	var errs []error
	for _, word := range s {
		if word != "*" && !slices.Contains(known, strings.TrimPrefix(word, "-")) {
			errs = append(errs, fmt.Errorf("--controllers: %q is not a controller; must be *, or names with or without a - before them, of: %s", word, strings.Join(names, ", ")))
		}
	}
	return errors.Join(errs...)
}

// Selects reports whether a controller, by its name, is selected.
func (s Selection) Selects(name string) bool {
	for p := range all() {
		if p.name == name {
			return s.selects(p)
		}
	}
	return false
}

func (s Selection) selects(p *part) bool {
	for _, word := range s {
		switch word {
		case p.name, p.alias:
			return true
		case "-" + p.name, "-" + p.alias:
			return false
		}
	}
	return slices.Contains(s, "*") && !p.onRequest
}
