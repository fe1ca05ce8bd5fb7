package volume

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A File is the content of one file and its permissions.
type File struct {
	Data []byte
	Mode int32
	User *int64 // UID of the owner; nil means that of the agent
}

// A Payload is the content of a volume, by path.
type Payload map[string]File

// Data is the content of a ConfigMap or a Secret.
type Data map[string][]byte

// OfConfigMap returns the data of a config map.
func OfConfigMap(m *corev1.ConfigMap) Data {
	d := make(Data, len(m.Data)+len(m.BinaryData))
	for k, v := range m.Data {
		d[k] = []byte(v)
	}
	maps.Copy(d, m.BinaryData)
	return d
}

// Add puts the keys of d into p: all of them, or the keys that items names, under the
// paths in items. A missing key is an error that begins with kind, unless optional is
// true.
func (p Payload) Add(kind string, d Data, items []corev1.KeyToPath, mode int32, optional bool) error {
	if len(items) == 0 {
		for k, v := range d {
			p[k] = File{Data: v, Mode: mode}
		}
		return nil
	}
	for _, i := range items {
		v, ok := d[i.Key]
		if !ok {
			if optional {
				continue
			}
			return fmt.Errorf("%s references non-existent key: %s", kind, i.Key)
		}
		p[i.Path] = File{Data: v, Mode: modeOr(i.Mode, mode)}
	}
	return nil
}

func modeOr(mode *int32, otherwise int32) int32 {
	if mode != nil {
		return *mode
	}
	return otherwise
}

// Fields returns the pod's own fields for a downward API volume.
type Fields interface {
	Field(path string) (string, error)
	Resource(ref *corev1.ResourceFieldSelector, c *corev1.Container) (string, error)
}

// AddFields puts fields of the pod into p.
func (p Payload) AddFields(items []corev1.DownwardAPIVolumeFile, pod *corev1.Pod, f Fields, mode int32) error {
	for i := range items {
		item := &items[i]
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = f.Field(item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			c := container(pod, item.ResourceFieldRef.ContainerName)
			if c == nil {
				return fmt.Errorf("%s: the pod has no container %q", item.Path, item.ResourceFieldRef.ContainerName)
			}
			text, err = f.Resource(item.ResourceFieldRef, c)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", item.Path, err)
		}
		p[item.Path] = File{Data: []byte(text), Mode: modeOr(item.Mode, mode)}
	}
	return nil
}

func container(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// refreshAt is the part of a token's life after which it is replaced, as in
// Kubernetes; a very long one goes after maxTokenAge.
const (
	refreshAt   = 0.8
	maxTokenAge = 24 * time.Hour
)

// Refresh returns when a service account token is to be replaced by a new one: at
// once if it can't be read. The token is not verified.
func Refresh(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Issued  int64 `json:"iat"`
		Expires int64 `json:"exp"`
	}
	if json.Unmarshal(b, &claims) != nil || claims.Expires <= claims.Issued {
		return time.Time{}
	}
	life := time.Duration(float64(claims.Expires-claims.Issued)*refreshAt) * time.Second
	return time.Unix(claims.Issued, 0).Add(min(life, maxTokenAge))
}
