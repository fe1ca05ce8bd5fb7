package pki

import (
	"testing"
	"time"
)

func TestACertificateIsIssuedAnewBeforeItExpires(t *testing.T) {
	a, err := Open(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	r := a.Renewed(Subject{CommonName: "system:node:a"})
	start := time.Now()
	first, err := r.current(start)
	if err != nil {
		t.Fatal(err)
	}
	if same, _ := r.current(start.Add(leafLife / 2)); same != first {
		t.Error("issued anew in the middle of its life")
	}
	later := start.Add(leafLife * 9 / 10)
	second, err := r.current(later)
	if err != nil || second == first || !second.Leaf.NotAfter.After(first.Leaf.NotAfter) {
		t.Errorf("not issued anew near its end: %v", err)
	}
}
