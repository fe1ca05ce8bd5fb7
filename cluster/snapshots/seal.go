package snapshots

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"

	"github.com/sampan-io/sampan/store/snapshot"
)

// Keys encrypt snapshot files as a whole, and decrypt them, in the format of age (age-encryption.org/v1). At most one
// of both is set.
type Keys struct {
	// PassphraseFile is the path of a file whose first line is the passphrase.
	PassphraseFile string

	// KeyFile is the path of a file with keys in age's format, one a line: an identity (AGE-SECRET-KEY-1…) encrypts and
	// decrypts, a recipient (age1…) encrypts only.
	KeyFile string
}

// Any reports whether there are keys.
func (k Keys) Any() bool { return k != Keys{} }

const (
	ageMagic = "age-encryption.org/v1\n"

	// The work factors of scrypt: of new files (64 MiB of memory, a few tenths of a second), and the largest one that
	// a file may ask for (256 MiB).
	workFactor    = 16
	maxWorkFactor = 18

	maxKeyFile    = 1 << 20
	minPassphrase = 8
)

// ErrSealed is returned for an encrypted file without keys.
var ErrSealed = errors.New("the snapshot is encrypted: pass --passphrase-file or --key-file")

// readKey reads a small file.
func readKey(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err == nil && len(data) > maxKeyFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxKeyFile)
	}
	return data, err
}

// passphrase reads the passphrase.
func (k Keys) passphrase() (string, error) {
	data, err := readKey(k.PassphraseFile)
	if err != nil {
		return "", fmt.Errorf("--passphrase-file: %w", err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	line = strings.TrimSuffix(line, "\r")
	if len(line) < minPassphrase {
		return "", fmt.Errorf("--passphrase-file: the first line of %s must have at least %d bytes, got %d", k.PassphraseFile, minPassphrase, len(line))
	}
	return line, nil
}

// seal returns a writer that encrypts to out. The file is complete when it was closed.
func (k Keys) seal(out io.Writer) (io.WriteCloser, error) {
	if k.PassphraseFile != "" {
		text, err := k.passphrase()
		if err != nil {
			return nil, err
		}
		to, err := age.NewScryptRecipient(text)
		if err != nil {
			return nil, err
		}
		to.SetWorkFactor(workFactor)
		return age.Encrypt(out, to)
	}
	data, err := readKey(k.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--key-file: %w", err)
	}
	to, err := age.ParseRecipients(bytes.NewReader(data))
	if err != nil {
		identities, identityErr := age.ParseIdentities(bytes.NewReader(data))
		if identityErr != nil {
			return nil, fmt.Errorf("--key-file: %s must have identities (AGE-SECRET-KEY-1…) or recipients (age1…) of age", k.KeyFile)
		}
		to = nil
		for _, i := range identities {
			switch i := i.(type) {
			case *age.X25519Identity:
				to = append(to, i.Recipient())
			case *age.HybridIdentity:
				to = append(to, i.Recipient())
			}
		}
	}
	if len(to) == 0 {
		return nil, fmt.Errorf("--key-file: %s has no key", k.KeyFile)
	}
	return age.Encrypt(out, to...)
}

// open returns the contents of a file, decrypted if it is encrypted, which sealed reports.
func (k Keys) open(file io.Reader) (in io.Reader, sealed bool, err error) {
	buffered := bufio.NewReaderSize(file, 256<<10)
	if head, _ := buffered.Peek(len(ageMagic)); string(head) != ageMagic {
		return buffered, false, nil
	}
	if !k.Any() {
		return nil, true, ErrSealed
	}
	var identities []age.Identity
	if k.PassphraseFile != "" {
		text, err := k.passphrase()
		if err != nil {
			return nil, true, err
		}
		with, err := age.NewScryptIdentity(text)
		if err != nil {
			return nil, true, err
		}
		with.SetMaxWorkFactor(maxWorkFactor)
		identities = append(identities, with)
	} else {
		data, err := readKey(k.KeyFile)
		if err == nil {
			identities, err = age.ParseIdentities(bytes.NewReader(data))
		}
		if err != nil {
			return nil, true, fmt.Errorf("--key-file: %s must have identities of age (AGE-SECRET-KEY-1…): %w", k.KeyFile, err)
		}
	}
	plain, err := age.Decrypt(buffered, identities...)
	if err != nil {
		return nil, true, fmt.Errorf("the snapshot cannot be decrypted with this passphrase or key: %w", err)
	}
	return bufio.NewReaderSize(authentic{plain}, 256<<10), true, nil
}

// authentic turns an error of decryption in the middle of a file into one of the format.
type authentic struct{ io.Reader }

func (a authentic) Read(b []byte) (int, error) {
	n, err := a.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("the encrypted file is damaged or cut off: %w", err)
	}
	return n, err
}

// reader opens a snapshot. One with the keys of its cluster is read from an encrypted file only.
func (k Keys) reader(file io.Reader) (r *snapshot.Reader, sealed bool, err error) {
	in, sealed, err := k.open(file)
	if err != nil {
		return nil, sealed, err
	}
	r, err = snapshot.NewReader(in)
	if err == nil && r.Info.Keys && !sealed {
		err = &snapshot.ForeignError{Reason: "the snapshot has the keys of its cluster, and only an encrypted file may have them: pass the encrypted file, or save it again"}
	}
	return r, sealed, err
}
