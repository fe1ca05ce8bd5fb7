package manifest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/cli/manifest"
	"github.com/sampan-io/sampan/client"
)

// pair writes a certificate and its key to files.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, data []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", signed), write("key.pem", "EC PRIVATE KEY", encoded)
}

func TestTLSSecret(t *testing.T) {
	cert, key := pair(t)
	objs, err := new(maker).make("create secret tls a --cert=" + cert + " --key=" + key)
	if err != nil {
		t.Fatal(err)
	}
	s, ok := objs[0].(*corev1.Secret)
	if !ok || s.Type != corev1.SecretTypeTLS || len(s.Data) != 2 {
		t.Fatalf("it is %v", objs[0])
	}
	for name, path := range map[string]string{"tls.crt": cert, "tls.key": key} {
		if want, err := os.ReadFile(path); err != nil || string(s.Data[name]) != string(want) {
			t.Errorf("%s is not the file %s: %v", name, path, err)
		}
	}
	_, other := pair(t)
	_, err = new(maker).make("create secret tls a --cert=" + cert + " --key=" + other)
	if want := cert + " and " + other + " are not a certificate and its key: tls: private key does not match public key"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err = new(maker).make("create secret tls a --cert=" + cert + " --key=none"); err == nil || err.Error() != "error reading none: open none: no such file or directory" {
		t.Errorf("it is %v", err)
	}
}

// TestEnvFileTakesValuesOfTheEnvironment has lines without a value.
func TestEnvFileTakesValuesOfTheEnvironment(t *testing.T) {
	t.Setenv("MANIFEST_GIVEN", "from here")
	file := filepath.Join(t.TempDir(), "vars")
	if err := os.WriteFile(file, []byte("\ufeffA=1\nMANIFEST_GIVEN\nMANIFEST_ABSENT\n  B=2=3 \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	objs, err := new(maker).make("create configmap a --from-env-file=" + file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"A": "1", "MANIFEST_GIVEN": "from here", "B": "2=3 "}
	if m, ok := objs[0].(*corev1.ConfigMap); !ok || !maps.Equal(m.Data, want) {
		t.Errorf("it is %v, want %q", objs[0], want)
	}
}

// TestContainersOfADeploymentHaveNames has images whose last word is not a name, or is that of another image. kubectl
// appends random letters to these.
func TestContainersOfADeploymentHaveNames(t *testing.T) {
	objs, err := new(maker).make("create deployment a --image=example.com:5000/my_app.web:v1 --image=my-app-web@sha256:0 --image=B --image=b:2")
	if err != nil {
		t.Fatal(err)
	}
	d, ok := objs[0].(*appsv1.Deployment)
	if !ok {
		t.Fatalf("it is a %T", objs[0])
	}
	var names []string
	for _, c := range d.Spec.Template.Spec.Containers {
		names = append(names, c.Name)
	}
	if want := []string{"my-app-web", "my-app-web-2", "b", "b-2"}; !slices.Equal(names, want) {
		t.Errorf("they are %q, want %q", names, want)
	}
}

// jobOf runs create job a --from=FROM with a server that has objects.
func jobOf(t *testing.T, from string, objects func(string) ([]client.Object, error)) (*batchv1.Job, error) {
	t.Helper()
	form, _, err := formOf(manifest.Forms(), []string{"job"})
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("job", pflag.ContinueOnError)
	form.Flags(flags)
	if form.Online() {
		t.Error("it asks a server before the flags are set")
	}
	if err := flags.Parse([]string{"--from=" + from}); err != nil {
		t.Fatal(err)
	}
	if !form.Online() {
		t.Error("it does not ask a server")
	}
	form.Connect(manifest.Server{Objects: objects})
	obj, err := form.Object("a", nil)
	if err != nil {
		return nil, err
	}
	j, ok := obj.(*batchv1.Job)
	if !ok {
		t.Fatalf("it is a %T", obj)
	}
	return j, nil
}

func TestJobFromCronJob(t *testing.T) {
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "nightly", UID: "1"}}
	cron.Spec.JobTemplate.Labels = map[string]string{"app": "nightly"}
	cron.Spec.JobTemplate.Annotations = map[string]string{"note": "x"}
	cron.Spec.JobTemplate.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "busybox"}}
	before := cron.DeepCopy()
	var asked string
	j, err := jobOf(t, "cronjob/nightly", func(argument string) ([]client.Object, error) {
		asked = argument
		return []client.Object{cron}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", Labels: map[string]string{"app": "nightly"},
			Annotations:     map[string]string{"note": "x", "cronjob.kubernetes.io/instantiate": "manual"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "nightly", UID: "1", Controller: new(true)}},
		},
		Spec: cron.Spec.JobTemplate.Spec,
	}
	if asked != "cronjob/nightly" || !reflect.DeepEqual(j, want) {
		t.Errorf("of %s: %v, want %v", asked, j, want)
	}
	j.Spec.Template.Spec.Containers[0].Image, j.Labels["app"] = "other", "other"
	if !reflect.DeepEqual(cron, before) {
		t.Error("the job shares memory with the object of the client")
	}

	for name, tt := range map[string]struct {
		objects []client.Object
		err     error
		want    string
		server  bool
	}{
		"none":        {nil, nil, "from must be an existing cronjob", false},
		"two":         {[]client.Object{cron, cron}, nil, "from must be an existing cronjob", false},
		"another":     {[]client.Object{&corev1.Pod{}}, nil, "unknown object type *v1.Pod", false},
		"not allowed": {nil, errors.New("no"), "no", true},
	} {
		_, err := jobOf(t, "x", func(string) ([]client.Object, error) { return tt.objects, tt.err })
		_, server := errors.AsType[*manifest.ServerError](err)
		if err == nil || err.Error() != tt.want || server != tt.server {
			t.Errorf("%s: %T %v, want %s", name, err, err, tt.want)
		}
	}
}

// runJob makes the Job of a command line such as "run job a --image=b".
func runJob(t *testing.T, line string) (*batchv1.Job, error) {
	t.Helper()
	var j manifest.JobFlags
	flags := pflag.NewFlagSet("job", pflag.ContinueOnError)
	j.Add(flags)
	if err := flags.Parse(strings.Fields(line)); err != nil {
		t.Fatal(err)
	}
	if given := j.Given(flags); given != strings.Contains(line, "--") {
		t.Errorf("%s: flags are given: %v", line, given)
	}
	return j.Object(flags.Arg(0), flags.Args()[1:])
}

func TestJobFlags(t *testing.T) {
	j, err := runJob(t, "a --image=b --labels=c=d,e=f --env=G=h --service-account=i --retries=2 --image-pull-policy=Always -- sleep 1")
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"c": "d", "e": "f"}
	want := &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels},
		Spec: batchv1.JobSpec{BackoffLimit: new(int32(2)), Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: "i", Containers: []corev1.Container{{
				Name: "a", Image: "b", Command: []string{"sleep", "1"}, ImagePullPolicy: corev1.PullAlways, Env: []corev1.EnvVar{{Name: "G", Value: "h"}},
			}}},
		}},
	}
	if !reflect.DeepEqual(j, want) {
		t.Errorf("it is %v, want %v", j, want)
	}
	for line, want := range map[string]string{
		"a":                                     "--image is required",
		"a --image=b --retries=-1":              "--retries=-1: want 0 or more",
		"a --image=b --env==c":                  "invalid env: =c, want NAME=VALUE",
		"a --image=b --labels=c=d,":             `unexpected label spec: "", want NAME=VALUE`,
		"a --image=b --image-pull-policy=never": "invalid image pull policy: never, valid values are: Always, IfNotPresent, Never",
	} {
		if j, err := runJob(t, line); err == nil || err.Error() != want {
			t.Errorf("%s: %v, %v, want %s", line, j, err, want)
		}
	}
}

func TestInteractivePod(t *testing.T) {
	for line, want := range map[string]corev1.Container{
		"run a --image=b -i":                    {Stdin: true, StdinOnce: true},
		"run a --image=b -it":                   {Stdin: true, StdinOnce: true, TTY: true},
		"run a --image=b -i --leave-stdin-open": {Stdin: true},
		"run a --image=b --leave-stdin-open":    {},
	} {
		objs, err := new(maker).make(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		p, ok := objs[0].(*corev1.Pod)
		if want.Name, want.Image = "a", "b"; !ok || !equality.Semantic.DeepEqual(p.Spec.Containers, []corev1.Container{want}) {
			t.Errorf("%s: %v, want %v", line, objs[0], want)
		}
	}
}

func TestCheckImage(t *testing.T) {
	for image, want := range map[string]string{
		"b":   "",
		"":    "--image is required",
		"b c": `invalid image name "b c": invalid reference format`,
	} {
		if err := manifest.CheckImage(image); want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%q: %v, want %s", image, err, want)
		}
	}
}
