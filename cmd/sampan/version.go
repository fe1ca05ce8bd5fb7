package main

import (
	"runtime/debug"
	"strings"
)

// versionOf returns the version of a program that was built without one, by `go install` or `go build`: that of its module, if
// it was built from a release, or else the commit, in the form that `git describe` has. It is "dev" if neither is known.
func versionOf(info *debug.BuildInfo) string {
	if info == nil {
		return "dev"
	}
	revision, modified := "", false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	release := info.Main.Version
	switch {
	case release != "" && release != "(devel)" && (revision == "" || !pseudo(release)):
		return release
	case revision == "":
		return "dev"
	}
	const short = 8
	version := revision[:min(short, len(revision))]
	if modified {
		version += "-dirty"
	}
	return version
}

// pseudo reports whether Go has made a version of a commit: it ends in a time of 14 digits and the commit.
func pseudo(version string) bool {
	version, _, _ = strings.Cut(version, "+")
	parts := strings.Split(version, "-")
	if len(parts) < 3 {
		return false
	}
	at := parts[len(parts)-2]
	at = at[strings.LastIndexByte(at, '.')+1:]
	return len(at) == 14 && strings.Trim(at, "0123456789") == "" && len(parts[len(parts)-1]) == 12
}
