package image

import (
	"fmt"
	"strings"
)

// Normalize completes an image's name as Docker made it custom: "web" means
// "docker.io/library/web:latest", as "docker.io/web" does. A name with a digest keeps it and gets no tag.
func Normalize(name string) (string, error) {
	bad := func(why string) (string, error) {
		return "", fmt.Errorf("image name %q %s; want something like registry.example/team/web:v1", name, why)
	}
	if name == "" {
		return bad("is empty")
	}
	rest, digest, hasDigest := strings.Cut(name, "@")
	if hasDigest && !validDigest(digest) {
		return bad("has a malformed digest")
	}
	tag := ""
	if colon := strings.LastIndexByte(rest, ':'); colon > strings.LastIndexByte(rest, '/') {
		rest, tag = rest[:colon], rest[colon+1:]
		if !validTag(tag) {
			return bad("has a malformed tag")
		}
	}
	domain, path, hasDomain := strings.Cut(rest, "/")
	if !hasDomain || !strings.ContainsAny(domain, ".:") && domain != "localhost" {
		domain, path = "docker.io", rest
	}
	if domain == "index.docker.io" {
		domain = "docker.io"
	}
	if domain == "docker.io" && !strings.Contains(path, "/") {
		path = "library/" + path
	}
	for part := range strings.SplitSeq(path, "/") {
		if !validPart(part) {
			return bad("has a malformed part " + fmt.Sprintf("%q", part))
		}
	}
	if strings.Trim(strings.ToLower(domain), "abcdefghijklmnopqrstuvwxyz0123456789.-:[]_") != "" {
		return bad("has a malformed registry")
	}
	full := domain + "/" + path
	if hasDigest {
		return full + "@" + digest, nil
	}
	if tag == "" {
		tag = "latest"
	}
	return full + ":" + tag, nil
}

// Repository returns the repository of a normalized name: REGISTRY/PATH.
func Repository(name string) string { return repository(name) }

// repository cuts the tag or digest off a normalized name.
func repository(name string) string {
	if bare, _, digested := strings.Cut(name, "@"); digested {
		return bare
	}
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		return name[:colon]
	}
	return name
}

func validPart(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789._-") == "" &&
		!strings.ContainsAny(s[:1]+s[len(s)-1:], "._-")
}

func validTag(s string) bool {
	return s != "" && len(s) <= 128 && !strings.ContainsAny(s[:1], ".-") &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

const digestPrefix = "sha256:"

// validDigest accepts SHA-256 digests, the only ones in use.
func validDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, digestPrefix)
	return ok && len(hex) == 64 && isHex(hex)
}

func isHex(s string) bool { return s != "" && strings.Trim(s, "0123456789abcdef") == "" }

// hexOf is the part of a digest that names a file.
func hexOf(digest string) string { return strings.TrimPrefix(digest, digestPrefix) }
