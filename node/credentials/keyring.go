package credentials

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A Credential is a user of a registry and where the node has it from.
type Credential struct {
	Username, Password string
	Hash               string // SHA-256 of the credential, in hexadecimal digits

	// Secret has the credential, or a plug-in has provided it to ServiceAccount. Both are zero for credentials of the node.
	Secret, ServiceAccount Source
}

// A Source identifies the object that has a credential.
type Source struct{ UID, Namespace, Name string }

// An entry is one credential of a Docker configuration, under the name of a registry or the beginning of repositories.
type entry struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	Email    string `json:"email,omitempty"`
	Auth     string `json:"auth,omitempty"` // base64 of USERNAME:PASSWORD
}

// A Keyring has credentials. The zero Keyring is empty.
type Keyring struct{ keys map[string][]Credential }

// FromSecrets returns the credentials in secrets of the two types; it ignores other secrets. The error names the secret
// that is not readable.
func FromSecrets(secrets []*corev1.Secret) (*Keyring, error) {
	k := &Keyring{}
	for _, s := range secrets {
		var entries map[string]entry
		var err error
		switch {
		case s.Type == corev1.SecretTypeDockerConfigJson && len(s.Data[corev1.DockerConfigJsonKey]) > 0:
			entries, err = config(s.Data[corev1.DockerConfigJsonKey])
		case s.Type == corev1.SecretTypeDockercfg && len(s.Data[corev1.DockerConfigKey]) > 0:
			if json.Unmarshal(s.Data[corev1.DockerConfigKey], &entries) != nil {
				err = errors.New("not valid JSON")
			}
		}
		if err == nil {
			err = k.add(entries, Source{UID: string(s.UID), Namespace: s.Namespace, Name: s.Name})
		}
		if err != nil {
			return nil, fmt.Errorf("secret %s/%s: %w", s.Namespace, s.Name, err)
		}
	}
	return k, nil
}

// FromFiles returns the credentials in the first of the files that exists. They are config.json as Docker writes it. A file
// that can't be read has none.
func FromFiles(files []string) *Keyring {
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		k := &Keyring{}
		if entries, err := config(data); err == nil && k.add(entries, Source{}) == nil {
			return k
		}
	}
	return &Keyring{}
}

// config reads config.json. The error does not repeat the text, which has secrets.
func config(data []byte) (map[string]entry, error) {
	var file struct {
		Auths map[string]entry `json:"auths"`
	}
	if json.Unmarshal(data, &file) != nil {
		return nil, errors.New("not valid JSON")
	}
	return file.Auths, nil
}

func (k *Keyring) add(entries map[string]entry, from Source) error {
	for at, e := range entries {
		if e.Auth != "" {
			var err error
			if e.Username, e.Password, err = decode(e.Auth); err != nil {
				return fmt.Errorf("entry %q: auth: %w", at, err)
			}
		}
		if key, ok := keyOf(at); ok {
			k.put(key, credential(e.Username, e.Password, e.Email, from))
		}
	}
	return nil
}

func (k *Keyring) put(key string, c Credential) {
	if k.keys == nil {
		k.keys = map[string][]Credential{}
	}
	k.keys[key] = append(k.keys[key], c)
}

func credential(user, password, email string, from Source) Credential {
	data, err := json.Marshal(entry{Username: user, Password: password, Email: email})
	c := Credential{Username: user, Password: password, Secret: from}
	if err == nil {
		sum := sha256.Sum256(data)
		c.Hash = hex.EncodeToString(sum[:])
	}
	return c
}

func decode(auth string) (user, password string, err error) {
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(auth), "="))
	user, password, ok := strings.Cut(string(plain), ":")
	if err != nil || !ok {
		return "", "", errors.New("must be base64 of USERNAME:PASSWORD")
	}
	return user, password, nil
}

// keyOf returns host and path of an entry. Docker writes /v1/ and /v2/ where it means the whole host.
func keyOf(at string) (string, bool) {
	if !strings.HasPrefix(at, "https://") && !strings.HasPrefix(at, "http://") {
		at = "https://" + at
	}
	u, err := url.Parse(at)
	if err != nil {
		return "", false
	}
	p := u.Path
	if strings.HasPrefix(p, "/v1/") || strings.HasPrefix(p, "/v2/") {
		p = p[len("/v1"):]
	}
	if p == "/" {
		p = ""
	}
	return u.Host + p, true
}

// dockerHub is the entry under which Docker keeps the credentials for docker.io.
const dockerHub = "index.docker.io"

// Lookup returns the credentials for a repository with its registry, such as docker.io/library/nginx: the most specific
// entries come first.
func (k *Keyring) Lookup(repository string) []Credential {
	keys := make([]string, 0, len(k.keys))
	for key := range k.keys {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	slices.Reverse(keys) // a longer path after a shorter one of the same beginning
	var found []Credential
	for _, key := range keys {
		if Matches(key, repository) {
			found = append(found, k.keys[key]...)
		}
	}
	if len(found) == 0 && (strings.HasPrefix(repository, "docker.io/") || strings.HasPrefix(repository, dockerHub+"/")) {
		return k.keys[dockerHub]
	}
	return found
}

// Matches reports whether a pattern matches a repository: the host part by part, where a part of the pattern may have
// globs; the port exactly; and the path of the pattern is the beginning of that of the repository.
func Matches(pattern, repository string) bool {
	p, err := url.Parse("https://" + pattern)
	if err != nil {
		return false
	}
	r, err := url.Parse("https://" + repository)
	if err != nil || !strings.HasPrefix(r.Path, p.Path) {
		return false
	}
	wanted, wantedPort := parts(p.Host)
	given, givenPort := parts(r.Host)
	if wantedPort != givenPort || len(wanted) != len(given) {
		return false
	}
	for i := range wanted {
		if ok, err := path.Match(wanted[i], given[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

func parts(host string) (names []string, port string) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = host, ""
	}
	return strings.Split(name, "."), port
}
