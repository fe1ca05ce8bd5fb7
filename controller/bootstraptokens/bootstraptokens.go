package bootstraptokens

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

// Names of loops.
const (
	CleanerLoop = "token-cleaner-controller"
	SignerLoop  = "bootstrap-signer-controller"
)

// Names that Kubernetes uses.
const (
	secretType      = "bootstrap.kubernetes.io/token"
	secretPrefix    = "bootstrap-token-"
	clusterInfo     = "cluster-info"
	kubeconfigKey   = "kubeconfig"
	signaturePrefix = "jws-kubeconfig-"
)

// Options configures the controllers. Config.Client is not used.
type Options struct {
	controller.Config

	Cleaner, Signer client.Interface // as which they work
}

// Tasks returns the controllers. Their tasks must run together, as one stage.
func Tasks(opts Options) []run.Task {
	opts.Client = opts.Cleaner
	config, caches := opts.WithDefaults()
	secrets := cache.Of(config.Caches, client.Secrets, nil)
	configs := cache.Of(config.Caches, client.ConfigMaps, nil)
	c := &cleaner{opts.Cleaner, secrets}
	cleaning := controller.New(controller.Options{
		Name: CleanerLoop, Reconcile: c.reconcile, Workers: config.Workers, Log: config.Log, Needs: []<-chan struct{}{secrets.Ready()},
	})
	s := &signer{opts.Signer, secrets, configs}
	signing := controller.New(controller.Options{
		Name: SignerLoop, Reconcile: s.reconcile, Workers: 1, Log: config.Log, Needs: []<-chan struct{}{secrets.Ready(), configs.Ready()},
	})
	info := controller.Key{Namespace: metav1.NamespacePublic, Name: clusterInfo}
	secrets.Subscribe(func(before, after *corev1.Secret) {
		if !isToken(before) && !isToken(after) {
			return
		}
		signing.Add(info)
		if isToken(after) {
			cleaning.Add(controller.KeyOf(after))
		}
	})
	configs.Subscribe(func(_, after *corev1.ConfigMap) {
		if after != nil && controller.KeyOf(after) == info {
			signing.Add(info)
		}
	})
	return []run.Task{caches, cleaning.Task(), signing.Task()}
}

func isToken(s *corev1.Secret) bool {
	return s != nil && s.Namespace == metav1.NamespaceSystem && s.Type == secretType
}

// expiration returns when a token expires, and false if it does not. One that says no time has expired.
func expiration(s *corev1.Secret) (time.Time, bool) {
	text := string(s.Data["expiration"])
	if text == "" {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, true
	}
	return at, true
}

// A cleaner deletes expired tokens.
type cleaner struct {
	client  client.Interface
	secrets *cache.Cache[*corev1.Secret]
}

func (c *cleaner) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	s, ok := c.secrets.Get(key.Namespace, key.Name)
	if !ok || !isToken(s) || s.DeletionTimestamp != nil {
		return controller.Result{}, nil
	}
	at, expires := expiration(s)
	if !expires {
		return controller.Result{}, nil
	}
	if left := time.Until(at); left > 0 {
		return controller.Result{After: left}, nil
	}
	err := client.Secrets.Delete(ctx, c.client, s.Namespace, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return controller.Result{}, fmt.Errorf("deleting an expired bootstrap token: %w", err)
	}
	return controller.Result{}, nil
}

// A signer signs the ConfigMap.
type signer struct {
	client  client.Interface
	secrets *cache.Cache[*corev1.Secret]
	configs *cache.Cache[*corev1.ConfigMap]
}

func (s *signer) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	info, ok := s.configs.Get(key.Namespace, key.Name)
	if !ok || info.DeletionTimestamp != nil {
		return controller.Result{}, nil
	}
	data, next, err := signed(info.Data, s.secrets.List(metav1.NamespaceSystem), time.Now())
	if err != nil || maps.Equal(data, info.Data) {
		return controller.Result{After: next}, err
	}
	fresh := info.DeepCopy()
	fresh.Data = data
	now, err := client.ConfigMaps.Update(ctx, s.client, fresh, "")
	switch {
	case apierrors.IsNotFound(err):
		return controller.Result{}, nil
	case err != nil:
		return controller.Result{}, fmt.Errorf("signing configmap %s: %w", key, err)
	}
	return controller.Result{After: next}, s.configs.Await(ctx, now.ResourceVersion)
}

var tokenID = regexp.MustCompile(`^[a-z0-9]{6}$`)

// signed returns the data of the ConfigMap with the signatures of the tokens for that, and how long they are right.
func signed(data map[string]string, secrets []*corev1.Secret, now time.Time) (map[string]string, time.Duration, error) {
	content, ok := data[kubeconfigKey]
	if !ok {
		return data, 0, nil
	}
	out, next := map[string]string{}, time.Duration(0)
	for key, value := range data {
		if !strings.HasPrefix(key, signaturePrefix) {
			out[key] = value
		}
	}
	for _, s := range secrets {
		id, secret := string(s.Data["token-id"]), s.Data["token-secret"]
		if !isToken(s) || s.DeletionTimestamp != nil || !tokenID.MatchString(id) || s.Name != secretPrefix+id || len(secret) == 0 || string(s.Data["usage-bootstrap-signing"]) != "true" {
			continue
		}
		if at, expires := expiration(s); expires {
			left := at.Sub(now)
			if left <= 0 {
				continue
			}
			if next == 0 || left < next {
				next = left
			}
		}
		signature, err := sign(content, id, secret)
		if err != nil {
			return nil, 0, err
		}
		out[signaturePrefix+id] = signature
	}
	return out, next, nil
}

// sign returns the detached signature (RFC 7515, appendix F) of content by HMAC with a secret.
func sign(content, id string, secret []byte) (string, error) {
	header, err := json.Marshal(struct {
		Algorithm string `json:"alg"`
		ID        string `json:"kid"`
	}{"HS256", id})
	if err != nil {
		return "", err
	}
	first := base64.RawURLEncoding.EncodeToString(header)
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte(first + "." + base64.RawURLEncoding.EncodeToString([]byte(content)))) // never fails
	return first + ".." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), nil
}
