package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Found is a cluster of this machine, or a node of another machine's cluster, that [Profile.Clusters] has found.
type Found struct {
	Profile
	Instance Instance // zero if it does not run
	Running  bool
}

// called returns the profile of another name on this machine, with its data in the default directory.
func (p Profile) called(name string) Profile {
	p.Name, p.RunDir, p.Default = name, filepath.Join(filepath.Dir(p.RunDir), name), filepath.Join(filepath.Dir(p.Default), name)
	p.DataDir = p.Default
	return p
}

// Clusters returns the clusters of this machine: first the running ones, then the stopped ones with data or a recorded data directory,
// both by name. A name can have two, with their data in different directories. The error joins the errors about clusters whose files
// cannot be read; the others are returned beside it.
func (p Profile) Clusters() ([]Found, error) {
	running, err := p.running()
	used := map[string]bool{}
	for _, f := range running {
		used[f.DataDir] = true
	}
	if p.Default == "" {
		return running, err
	}
	names, listErr := namesIn(filepath.Dir(p.Default))
	errs, all := []error{err, listErr}, running
	for _, name := range names {
		q := p.called(name)
		recorded, err := q.Recorded()
		if err != nil {
			errs = append(errs, err)
		}
		for _, dir := range []string{recorded, q.Default} {
			q.DataDir = dir
			if dir == "" || used[dir] || dir != recorded && !q.holdsIn(dir) {
				continue
			}
			i, runs, err := q.Instance()
			if err != nil {
				continue // it is not known whether it runs; the error is among those of running
			}
			used[dir] = true
			if runs = runs && q.At(i).DataDir == dir; !runs {
				i = Instance{}
			}
			all = append(all, Found{q, i, runs})
		}
	}
	slices.SortStableFunc(all, func(a, b Found) int {
		switch {
		case a.Running == b.Running:
			return 0
		case a.Running:
			return -1
		}
		return 1
	})
	return all, errors.Join(errs...)
}

// running returns the running clusters, as [Profile.Clusters] does.
func (p Profile) running() ([]Found, error) {
	names, err := namesIn(filepath.Dir(p.RunDir))
	errs := []error{err}
	var all []Found
	for _, name := range names {
		q := p.called(name)
		i, running, err := q.Instance()
		switch {
		case err != nil:
			errs = append(errs, err)
		case running:
			all = append(all, Found{q.At(i), i, true})
		}
	}
	return all, errors.Join(errs...)
}

// namesIn returns the names of the clusters that have a directory or a record (NAME.json) in a directory, sorted. There are none in
// one that does not exist.
func namesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for clusters: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), ".json"); checkName(name) == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
