package openapi

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/sampan-io/sampan/catalog"
)

// fingerprint returns a name of the document of a group version: it differs if the document does. A document is made of its
// kinds, the schemas of kinds without Go types, and the program: its Go types and their marks. So the fingerprint is the
// same after a restart and on each server of one build, and the documents need not be made for the index of them.
func (d *documents) fingerprint(kinds []*catalog.Kind) (string, error) {
	h := sha256.New()
	e := json.NewEncoder(h)
	kinds = slices.Clone(kinds)
	slices.SortFunc(kinds, func(a, b *catalog.Kind) int { return cmp.Compare(a.Resource, b.Resource) })
	for _, k := range kinds {
		list := ""
		if k.NewList != nil {
			list = k.NewList().GetObjectKind().GroupVersionKind().Kind
		}
		var subs []string
		for _, s := range k.Subresources {
			subs = append(subs, s.Name)
		}
		err := e.Encode([]any{d.version, d.build, k.GroupVersionKind, k.Resource, list, k.Namespaced, k.Verbs, subs, k.SchemaDigest})
		if err != nil {
			return "", err
		}
	}
	return strings.ToUpper(hex.EncodeToString(h.Sum(nil))), nil
}

// buildID returns a name of this build of the program: the ID that Go's linker gives it, which depends on all that is linked.
// If it cannot be read, the name is of this process alone.
func buildID() string {
	f, err := elf.Open("/proc/self/exe") // the running one, even if its file has been replaced
	if err != nil {
		return rand.Text()
	}
	defer func() { _ = f.Close() }() // it was only read
	if s := f.Section(".note.go.buildid"); s != nil {
		if id, err := s.Data(); err == nil && len(id) > 0 {
			return string(id)
		}
	}
	return rand.Text()
}
