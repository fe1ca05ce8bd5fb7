package session

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// DetachKeys are keys that end a session with a terminal, as a flag's value. The zero value has kubectl's default.
type DetachKeys struct {
	text  string
	bytes []byte
}

const (
	defaultDetachKeys = "ctrl-p,ctrl-q"
	control           = 0x1f // the bits of a key that a terminal sends together with ctrl
	deleteKey         = 0x7f
)

// AddFlag adds --detach-keys, which sets k.
func (k *DetachKeys) AddFlag(f *pflag.FlagSet) {
	f.Var(k, "detach-keys", `keys that detach from a terminal (-it) and leave the container running, separated by commas: a character, ctrl-X or DEL`)
}

// Bytes returns a terminal's bytes for the keys, at least one.
func (k *DetachKeys) Bytes() []byte {
	if k.bytes == nil {
		return []byte{'P' & control, 'Q' & control}
	}
	return k.bytes
}

// String implements [pflag.Value].
func (k *DetachKeys) String() string {
	if k.bytes == nil {
		return defaultDetachKeys
	}
	return k.text
}

// Type implements [pflag.Value].
func (k *DetachKeys) Type() string { return "keys" }

// Set implements [pflag.Value]. An empty text means the default, as in kubectl.
func (k *DetachKeys) Set(text string) error {
	if text == "" {
		*k = DetachKeys{}
		return nil
	}
	all, err := keyBytes(text)
	if err != nil {
		return err
	}
	*k = DetachKeys{text, all}
	return nil
}

func keyBytes(text string) ([]byte, error) {
	var all []byte
	for key := range strings.SplitSeq(text, ",") {
		code, err := keyByte(key)
		if err != nil {
			return nil, err
		}
		all = append(all, code)
	}
	return all, nil
}

func keyByte(key string) (byte, error) {
	if len(key) == 1 {
		return key[0], nil
	}
	if key == "DEL" {
		return deleteKey, nil
	}
	if of, ok := strings.CutPrefix(key, "ctrl-"); ok && len(of) == 1 && strings.Contains(`@abcdefghijklmnopqrstuvwxyz[\]^_`, of) {
		return of[0] & control, nil
	}
	return 0, fmt.Errorf(`unknown key %q: must be one ASCII character, ctrl- with one of a-z @ [ \ ] ^ _, or DEL, separated by commas`, key)
}
