package plugin

import (
	"encoding/json"
	"errors"
	"fmt"

	kjson "sigs.k8s.io/json"
)

// DecodeArgs reads the arguments of a plug-in into a struct with JSON tags, which holds the defaults.
// Names of fields are case sensitive; unknown fields, duplicates and wrong types are errors
// that name the field, all at once where that is possible. Empty args change nothing.
// The fields apiVersion and kind are taken where the struct has them, and otherwise ignored.
func DecodeArgs(args json.RawMessage, into any) error {
	if len(args) == 0 || string(args) == "null" {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(args, &fields); err != nil {
		return fmt.Errorf("want an object: %w", err)
	}
	delete(fields, "apiVersion")
	delete(fields, "kind")
	strict, err := kjson.UnmarshalStrict(mustMarshal(fields), into, kjson.DisallowDuplicateFields, kjson.DisallowUnknownFields)
	if err != nil {
		return err
	}
	// Duplicates are lost in the map above.
	if again, err := kjson.UnmarshalStrict(args, &map[string]json.RawMessage{}, kjson.DisallowDuplicateFields); err == nil {
		strict = append(again, strict...)
	}
	return errors.Join(strict...)
}

func mustMarshal(fields map[string]json.RawMessage) []byte {
	b, err := json.Marshal(fields)
	if err != nil {
		panic(err) // they come from Unmarshal
	}
	return b
}
