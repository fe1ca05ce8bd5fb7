package document

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
	kyaml "sigs.k8s.io/yaml"
)

// ToJSON converts a YAML document to JSON. It is an error if a map has a key twice. The library's own check also refuses a key that
// follows a merge ("<<") and overrides one of its keys, which is what merges are for; kubectl takes it.
func ToJSON(text []byte) ([]byte, error) {
	data, strict := kyaml.YAMLToJSONStrict(text)
	if strict == nil {
		return data, nil
	}
	if !bytes.Contains(text, []byte("<<")) {
		return nil, strict
	}
	data, err := kyaml.YAMLToJSON(text)
	if err != nil {
		return nil, strict
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, strict
	}
	if err := checkKeys(&root); err != nil {
		return nil, err
	}
	return data, nil
}

// checkKeys returns an error if a map below n has a key twice. A key may follow a merge that has it, too. If the merge comes later,
// that is an error, because the library then takes the value of the merge, and YAML that of the key.
func checkKeys(n *yaml.Node) error {
	if n.Kind == yaml.MappingNode {
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			names := []string{name(key)}
			if key.Tag == mergeTag {
				names = mergedNames(n.Content[i+1])
			}
			for _, name := range names {
				if seen[name] {
					return fmt.Errorf("yaml: line %d: key %q already set in map", key.Line, name)
				}
			}
			if key.Tag != mergeTag {
				seen[name(key)] = true
			}
		}
	}
	for _, inner := range n.Content {
		if err := checkKeys(inner); err != nil {
			return err
		}
	}
	return nil
}

// mergeTag is the tag of the key "<<".
const mergeTag = "!!merge"

// mergedNames returns the keys of the value of a merge: a map, an alias of one, or a list of these.
func mergedNames(n *yaml.Node) (names []string) {
	switch n.Kind {
	case yaml.AliasNode:
		return mergedNames(n.Alias)
	case yaml.SequenceNode:
		for _, inner := range n.Content {
			names = append(names, mergedNames(inner)...)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Tag == mergeTag {
				names = append(names, mergedNames(n.Content[i+1])...)
			} else {
				names = append(names, name(n.Content[i]))
			}
		}
	default: // not the value of a merge, which the conversion reports
	}
	return names
}

// name returns the text of a key.
func name(key *yaml.Node) string {
	if key.Kind == yaml.AliasNode {
		key = key.Alias
	}
	return key.Value
}
