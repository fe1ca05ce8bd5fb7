package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// placed returns a profile with its data in a directory that is not the default one, both without data yet.
func placed(t *testing.T) Profile {
	t.Helper()
	dir := t.TempDir()
	return Profile{Name: "test", DataDir: filepath.Join(dir, "disk"), RunDir: filepath.Join(dir, "run"), Default: filepath.Join(dir, "lib", "test")}
}

// in returns the profile with its data in another directory.
func (p Profile) in(dir string) Profile {
	p.DataDir = dir
	return p
}

// keep makes the data of a cluster.
func keep(t *testing.T, p Profile) {
	t.Helper()
	if err := os.MkdirAll(p.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := p.Keep(Settings{NodeName: "boat"}); err != nil {
		t.Fatal(err)
	}
}

func TestLocatedFindsTheRecordedDirectory(t *testing.T) {
	p := placed(t)
	byName := p.in(p.Default)
	if got, err := byName.Located(); err != nil || got.DataDir != p.Default {
		t.Errorf("before a start: %s, %v, want the default", got.DataDir, err)
	}
	keep(t, p)
	if err := p.Record(); err != nil {
		t.Fatal(err)
	}
	if got, err := byName.Located(); err != nil || got.DataDir != p.DataDir {
		t.Errorf("after Record: %s, %v, want %s", got.DataDir, err, p.DataDir)
	}
	if had, err := p.Remove(t.Context()); !had || err != nil {
		t.Fatal(had, err)
	}
	if got, err := byName.Located(); err != nil || got.DataDir != p.Default {
		t.Errorf("after Remove: %s, %v, want the default", got.DataDir, err)
	}
}

// A directory belongs to the name that was started in it last: a purge of another name must not remove it.
func TestDirectoryBelongsToTheLastName(t *testing.T) {
	p := placed(t)
	other := p
	other.Name, other.Default = "other", filepath.Join(filepath.Dir(p.Default), "other")
	keep(t, p)
	for _, one := range []Profile{p, other} {
		if err := one.Record(); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		by   Profile
		want string
	}{"the first name": {p.in(p.Default), p.Default}, "the last name": {other.in(other.Default), p.DataDir}} {
		if got, err := tt.by.Located(); err != nil || got.DataDir != tt.want {
			t.Errorf("%s finds %s, %v, want %s", name, got.DataDir, err, tt.want)
		}
	}
}

// A recorded directory without data, perhaps because its disk is not mounted, is still the one of the cluster.
func TestLocatedKeepsAMissingDirectory(t *testing.T) {
	p := placed(t)
	if err := p.Record(); err != nil {
		t.Fatal(err)
	}
	byName := p.in(p.Default)
	got, err := byName.Located()
	if err != nil || got.DataDir != p.DataDir {
		t.Errorf("%s, %v, want %s", got.DataDir, err, p.DataDir)
	}
	if had, err := got.Remove(t.Context()); had || err != nil {
		t.Errorf("Remove = %v, %v, want nothing removed", had, err)
	}
	if recorded, err := p.Recorded(); recorded != "" || err != nil {
		t.Errorf("after Remove %q is recorded, %v", recorded, err)
	}
}

func TestLocatedRefusesToChooseBetweenTwo(t *testing.T) {
	p := placed(t)
	byName := p.in(p.Default)
	keep(t, byName)
	if err := p.Record(); err != nil {
		t.Fatal(err)
	}
	if _, err := byName.Located(); err == nil || !strings.Contains(err.Error(), p.DataDir+", which has none now") {
		t.Errorf("only the default directory has data: %v", err)
	}
	keep(t, p)
	if _, err := byName.Located(); err == nil || !strings.Contains(err.Error(), "there are two clusters test") {
		t.Errorf("both directories have data: %v", err)
	}
	if other, err := p.Elsewhere(); other != p.Default || err != nil {
		t.Errorf("Elsewhere = %q, %v, want the default directory", other, err)
	}
	if other, err := byName.Elsewhere(); other != p.DataDir || err != nil {
		t.Errorf("Elsewhere = %q, %v, want the recorded directory", other, err)
	}
	// A start in the default directory makes that the one of the name.
	if err := byName.Record(); err != nil {
		t.Fatal(err)
	}
	if got, err := byName.Located(); err != nil || got.DataDir != p.Default {
		t.Errorf("after a start in the default directory: %s, %v", got.DataDir, err)
	}
	// Removing the other one changes nothing about that.
	if err := p.Record(); err != nil {
		t.Fatal(err)
	}
	if _, err := byName.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := byName.Located(); err != nil || got.DataDir != p.DataDir {
		t.Errorf("after the default directory was removed: %s, %v", got.DataDir, err)
	}
}

// TestLostDefaultDirectoryIsKnown: a cluster whose data in the default directory are gone is another case than one that was never started.
func TestLostDefaultDirectoryIsKnown(t *testing.T) {
	p := placed(t)
	p = p.in(p.Default)
	if recorded, err := p.Recorded(); recorded != "" || err != nil {
		t.Errorf("before a start %q is recorded, %v", recorded, err)
	}
	keep(t, p)
	for range 2 {
		if err := p.Record(); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := p.Located(); err != nil || got.DataDir != p.Default {
		t.Errorf("the directory is %s, %v, want the default one", got.DataDir, err)
	}
	if err := os.RemoveAll(p.DataDir); err != nil {
		t.Fatal(err)
	}
	if recorded, err := p.Recorded(); recorded != p.Default || err != nil {
		t.Errorf("without its data %q is recorded, %v, want the default directory", recorded, err)
	}
	if all, err := p.Clusters(); err != nil || len(all) != 1 || all[0].DataDir != p.Default {
		t.Errorf("clusters: %+v, %v, want the lost one", all, err)
	}
	if had, err := p.Remove(t.Context()); had || err != nil {
		t.Errorf("Remove = %v, %v, want nothing removed", had, err)
	}
	if recorded, err := p.Recorded(); recorded != "" || err != nil {
		t.Errorf("after Remove %q is recorded, %v", recorded, err)
	}
}
