package manifest

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/client"
)

// keyedInput is what flags say about the keys of a ConfigMap or Secret.
type keyedInput struct {
	files, literals, envFiles []string
}

func (in *keyedInput) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&in.files, "from-file", nil, "[KEY=]PATH of a file, or of a directory whose files each become a key")
	f.StringArrayVar(&in.literals, "from-literal", nil, "KEY=VALUE to add; may be repeated")
	f.StringSliceVar(&in.envFiles, "from-env-file", nil, "path of a file with KEY=VALUE lines; a line with only KEY takes the value from the environment")
}

// read calls add for every key. Owner is their object, for messages.
func (in *keyedInput) read(owner string, add func(key string, value []byte, text bool)) error {
	if len(in.envFiles) > 0 && len(in.files)+len(in.literals) > 0 {
		return errors.New("from-env-file cannot be combined with from-file or from-literal")
	}
	taken := map[string]bool{}
	put := func(key string, value []byte) error {
		if wrong := validation.IsConfigMapKey(key); len(wrong) > 0 {
			return fmt.Errorf("%q is not a valid key name for a %s: %s", key, owner, strings.Join(wrong, "; "))
		}
		if taken[key] {
			return fmt.Errorf("cannot add key %q, another key by that name already exists in Data for %s", key, owner)
		}
		taken[key] = true
		add(key, value, utf8.Valid(value))
		return nil
	}
	var errs []error
	for _, text := range in.files {
		errs = append(errs, fromFile(text, put))
	}
	for _, text := range in.literals {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			errs = append(errs, fmt.Errorf("invalid literal source %v, expected key=value", text))
			continue
		}
		errs = append(errs, put(key, []byte(value)))
	}
	for _, path := range in.envFiles {
		errs = append(errs, fromEnvFile(path, put))
	}
	return errors.Join(errs...)
}

// fromFile reads [KEY=]PATH.
func fromFile(text string, put func(string, []byte) error) error {
	key, path, named := strings.Cut(text, "=")
	if !named {
		key, path = filepath.Base(text), text
	}
	if key == "" || path == "" || strings.Contains(path, "=") {
		return fmt.Errorf("--from-file=%s: want PATH or KEY=PATH", text)
	}
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("error reading %s: %w", path, err)
	}
	if !st.IsDir() {
		value, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("error reading %s: %w", path, err)
		}
		return put(key, value)
	}
	if named {
		return fmt.Errorf("cannot give a key name for a directory path: %s", text)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("error listing files in %s: %w", path, err)
	}
	for _, e := range entries {
		file := filepath.Join(path, e.Name())
		if st, err := os.Stat(file); err != nil || !st.Mode().IsRegular() {
			continue // only files have contents
		}
		value, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("error reading %s: %w", file, err)
		}
		if err := put(e.Name(), value); err != nil {
			return err
		}
	}
	return nil
}

func fromEnvFile(path string, put func(string, []byte) error) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("error reading %s: %w", path, err)
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimLeft(lines.Text(), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, given := strings.Cut(line, "=")
		if wrong := validation.IsEnvVarName(key); len(wrong) > 0 {
			return fmt.Errorf("%s, line %d: %q is not a valid key name: %s", path, n, key, strings.Join(wrong, "; "))
		}
		if !given {
			if value, given = os.LookupEnv(key); !given {
				continue
			}
		}
		if err := put(key, []byte(value)); err != nil {
			return err
		}
	}
	return lines.Err()
}

func tlsForm() Form {
	var cert, key string
	return Form{
		Use: "tls NAME --cert=FILE --key=FILE", Short: "Create a Secret with a certificate and its key", Mapping: resource.MappingOf(client.Secrets),
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&cert, "cert", "", "path of the certificate, PEM (required)")
			f.StringVar(&key, "key", "", "path of its private key, PEM (required)")
		},
		Object: func(name string, _ []string) (runtime.Object, error) {
			if cert == "" || key == "" {
				return nil, errors.New("key and cert must be specified")
			}
			s := newSecret(name, corev1.SecretTypeTLS)
			s.Data = map[string][]byte{}
			for k, path := range map[string]string{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key} {
				text, err := os.ReadFile(path)
				if err != nil {
					return nil, fmt.Errorf("error reading %s: %w", path, err)
				}
				s.Data[k] = text
			}
			if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
				return nil, fmt.Errorf("%s and %s are not a certificate and its key: %w", cert, key, err)
			}
			return s, nil
		},
	}
}

func registryForm() Form {
	var server, user, password, email string
	var files []string
	return Form{
		Use: "docker-registry NAME --docker-username=USER --docker-password=PASSWORD", Short: "Create a Secret for an image registry", Mapping: resource.MappingOf(client.Secrets),
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&server, "docker-server", "https://index.docker.io/v1/", "address of the registry")
			f.StringVar(&user, "docker-username", "", "user name for the registry")
			f.StringVar(&password, "docker-password", "", "password for the registry")
			f.StringVar(&email, "docker-email", "", "email address for the registry")
			f.StringSliceVar(&files, "from-file", nil, "path of a .dockerconfigjson file to use instead")
		},
		Object: func(name string, _ []string) (runtime.Object, error) {
			s := newSecret(name, corev1.SecretTypeDockerConfigJson)
			if len(files) > 0 {
				return s, fromFile(corev1.DockerConfigJsonKey+"="+strings.TrimPrefix(files[0], corev1.DockerConfigJsonKey+"="), func(key string, value []byte) error {
					if len(files) > 1 || !json.Valid(value) {
						return errors.New("--from-file: must be one JSON file")
					}
					s.Data = map[string][]byte{key: value}
					return nil
				})
			}
			if user == "" || password == "" || server == "" {
				return nil, errors.New("either --from-file or the combination of --docker-username, --docker-password and --docker-server is required")
			}
			type login struct {
				Username string `json:"username,omitempty"`
				Password string `json:"password,omitempty"`
				Email    string `json:"email,omitempty"`
				Auth     string `json:"auth,omitempty"`
			}
			text, err := json.Marshal(map[string]map[string]login{"auths": {server: {user, password, email, base64.StdEncoding.EncodeToString([]byte(user + ":" + password))}}})
			s.Data = map[string][]byte{corev1.DockerConfigJsonKey: text}
			return s, err
		},
	}
}
