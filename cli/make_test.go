package cli_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/client"
)

// TestObjectsFromFlags compares the objects that the commands make from flags with those
// that kubectl 1.37 makes from the same flags.
func TestObjectsFromFlags(t *testing.T) {
	term := &terminal{t: t, kubeconfig: t.TempDir() + "/none"} // no cluster is needed
	dir := t.TempDir()
	key := write(t, dir+"/key", "value\n")
	env := write(t, dir+"/env", "# comment\nA=1\n\nB=two words\nSAMPAN_TEST_UNSET\n")
	binary := write(t, dir+"/binary", "\xff\xfe")
	for _, tt := range []struct{ args, want string }{
		{"run web --image=x --port=80 --env=A=b=c --labels=a=b,c=d --restart=Never -- a b", `apiVersion: v1
kind: Pod
metadata:
  labels:
    a: b
    c: d
  name: web
spec:
  containers:
  - args:
    - a
    - b
    env:
    - name: A
      value: b=c
    image: x
    name: web
    ports:
    - containerPort: 80
    resources: {}
  dnsPolicy: ClusterFirst
  restartPolicy: Never
status: {}
`},
		{"run web --image=x --command -n two -- sh -c date", `apiVersion: v1
kind: Pod
metadata:
  labels:
    run: web
  name: web
  namespace: two
spec:
  containers:
  - command:
    - sh
    - -c
    - date
    image: x
    name: web
    resources: {}
  dnsPolicy: ClusterFirst
  restartPolicy: Always
status: {}
`},
		{"create deployment web --image=r.io:5000/a/x:v1 --image=x@sha256:0 --replicas=2 --port=80", `apiVersion: apps/v1
kind: Deployment
metadata:
  labels:
    app: web
  name: web
spec:
  replicas: 2
  selector:
    matchLabels:
      app: web
  strategy: {}
  template:
    metadata:
      labels:
        app: web
    spec:
      containers:
      - image: r.io:5000/a/x:v1
        name: x
        ports:
        - containerPort: 80
        resources: {}
      - image: x@sha256:0
        name: x-2
        resources: {}
status: {}
`},
		{"create job j --image=x -- a b", `apiVersion: batch/v1
kind: Job
metadata:
  name: j
spec:
  template:
    metadata: {}
    spec:
      containers:
      - command:
        - a
        - b
        image: x
        name: j
        resources: {}
      restartPolicy: Never
status: {}
`},
		{"create configmap c --from-literal=a=b --from-file=k=" + key + " --from-file=" + binary, "apiVersion: v1\nbinaryData:\n  binary: //4=\ndata:\n  a: b\n  k: |\n    value\nkind: ConfigMap\nmetadata:\n  name: c\n"},
		{"create cm c --from-env-file=" + env, "apiVersion: v1\ndata:\n  A: \"1\"\n  B: two words\nkind: ConfigMap\nmetadata:\n  name: c\n"},
		{"create secret generic s --from-literal=a=b", "apiVersion: v1\ndata:\n  a: Yg==\nkind: Secret\nmetadata:\n  name: s\n"},
		{"create secret docker-registry r --docker-username=u --docker-password=p --docker-email=e", `apiVersion: v1
data:
  .dockerconfigjson: eyJhdXRocyI6eyJodHRwczovL2luZGV4LmRvY2tlci5pby92MS8iOnsidXNlcm5hbWUiOiJ1IiwicGFzc3dvcmQiOiJwIiwiZW1haWwiOiJlIiwiYXV0aCI6ImRUcHcifX19
kind: Secret
metadata:
  name: r
type: kubernetes.io/dockerconfigjson
`},
		{"create ns n", "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: \"n\"\nspec: {}\nstatus: {}\n"},
		{"create serviceaccount sa", "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: sa\n"},
		{"create service clusterip s --tcp=80:8080 --tcp=90", `apiVersion: v1
kind: Service
metadata:
  labels:
    app: s
  name: s
spec:
  ports:
  - name: 80-8080
    port: 80
    protocol: TCP
    targetPort: 8080
  - name: "90"
    port: 90
    protocol: TCP
    targetPort: 90
  selector:
    app: s
  type: ClusterIP
status:
  loadBalancer: {}
`},
		{"create svc externalname s --external-name=a.b", `apiVersion: v1
kind: Service
metadata:
  labels:
    app: s
  name: s
spec:
  externalName: a.b
  selector:
    app: s
  type: ExternalName
status:
  loadBalancer: {}
`},
	} {
		line, rest, dashed := strings.Cut(tt.args, " -- ")
		args := append(strings.Fields(line), "--dry-run=client", "-o", "yaml")
		if dashed {
			args = append(append(args, "--"), strings.Fields(rest)...)
		}
		term.want(0, tt.want, "", args...)
	}
}

func TestObjectsFromFlagsAreMade(t *testing.T) {
	c, term := realServer(t)
	term.want(0, "pod/web created\n", "", "run", "web", "--image=x")
	term.want(0, "pod/web2 created (dry run)\n", "", "run", "web2", "--image=x", "--dry-run=client")
	term.want(0, "pod/web2 created (server dry run)\n", "", "run", "web2", "--image=x", "--dry-run=server")
	term.want(0, "service/front created\npod/front created\n", "", "run", "front", "--image=x", "--port=80", "--expose", "-n", "two")
	s, err := client.Services.Get(t.Context(), c, "two", "front")
	if err != nil || s.Spec.Selector["run"] != "front" || s.Spec.Ports[0].Port != 80 {
		t.Errorf("the service is %+v, %v", s, err)
	}
	term.want(1, "", "Error from server (AlreadyExists): pod/web: pods \"web\" already exists\n", "run", "web", "--image=x")
	term.want(0, "configmap/c created\n", "", "create", "configmap", "c", "--from-literal=a=b", "--save-config")
	term.want(0, "namespace/n created\n", "", "create", "namespace", "n")
	conf := file(t, "c.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {z: \"1\"}\n")
	term.want(0, "configmap/c replaced (server dry run)\n", "", "replace", "-f", conf, "--dry-run=server")
	term.want(0, "configmap/c replaced\n", "", "replace", "-f", conf)
	if m := getMap(t, c, "default", "c"); len(m.Data) != 1 || len(m.Annotations) != 0 || m.Data["z"] != "1" {
		t.Errorf("replaced: %+v", m)
	}
	write(t, conf, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, resourceVersion: \"1\"}\n")
	if got := term.run("replace", "-f", conf); got.code != 1 || !strings.Contains(got.err, "Error from server (Conflict): "+conf) {
		t.Errorf("an old version: %+v", got)
	}
	write(t, conf, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: none}\n")
	if got := term.run("replace", "-f", conf); got.code != 1 || !strings.Contains(got.err, `configmaps "none" not found`) {
		t.Errorf("what is not there: %+v", got)
	}
}

func TestWrongFlagsOfMakingVerbs(t *testing.T) {
	term := &terminal{t: t, kubeconfig: t.TempDir() + "/none"}
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/sub", 0o700); err != nil {
		t.Fatal(err)
	}
	bad := write(t, dir+"/bad", "A=1\n1 x=2\n")
	for args, want := range map[string]string{
		"run":                                 "NAME is required for run",
		"run web":                             "--image is required",
		"run web --image=a|b":                 "invalid image name \"a b\"",
		"run web --image=x --restart=Perhaps": "invalid restart policy: Perhaps, valid values are: Always, OnFailure, Never",
		"run web --image=x --image-pull-policy=No":                          "invalid image pull policy: No, valid values are: Always, IfNotPresent, Never",
		"run web --image=x --env=A":                                         "invalid env: A",
		"run web --image=x --port=http":                                     "--port must be a number",
		"run web --image=x --port=70000":                                    "want a number from 1 to 65535",
		"run web --image=x --labels=a":                                      `unexpected label spec: "a", want NAME=VALUE`,
		"run web --image=x --expose":                                        "--port must be set when exposing a service",
		"run web --image=x --tty":                                           "-i/--stdin is required",
		"run web --image=x --command":                                       "--command needs a command",
		"create configmap":                                                  "exactly one NAME is required, got 0",
		"create configmap a b":                                              "exactly one NAME is required, got 2",
		"create configmap a --from-literal=x":                               "invalid literal source x, expected key=value",
		"create configmap a --from-literal=x/y=z":                           `"x/y" is not a valid key name for a ConfigMap "a"`,
		"create configmap a --from-literal=x=1 --from-literal=x=2":          `cannot add key "x", another key by that name already exists in Data for ConfigMap "a"`,
		"create configmap a --from-file=" + dir + "/none":                   "no such file or directory",
		"create configmap a --from-file=k=" + dir:                           "cannot give a key name for a directory path",
		"create configmap a --from-env-file=" + bad:                         bad + ", line 2: \"1 x\" is not a valid key name",
		"create configmap a --from-env-file=" + bad + " --from-literal=a=b": "from-env-file cannot be combined with from-file or from-literal",
		"create secret":                                                     "must specify one of: generic, tls, docker-registry",
		"create secret tls s":                                               "key and cert must be specified",
		"create secret tls s --cert=" + bad + " --key=" + bad:               "are not a certificate and its key",
		"create secret docker-registry s":                                   "either --from-file or the combination of --docker-username",
		"create service clusterip s":                                        "at least one tcp port specifier must be provided",
		"create service clusterip s --tcp=0":                                "--tcp=0: want PORT or PORT:TARGET",
		"create service clusterip s --tcp=80:70000":                         "--tcp=80:70000: want PORT or PORT:TARGET",
		"create service externalname s":                                     `required flag(s) "external-name" not set`,
		"create job j":                                                      "either --image or --from must be specified",
		"create deployment d":                                               `required flag(s) "image" not set`,
		"create deployment d --image=x --replicas=-1":                       "--replicas=-1: want 0 or more",
		"create boat b":                                                     `unknown command "boat" for "sampan create"`,
		"replace":                                                           "must specify one of -f and -k",
		"create configmap a --dry-run=perhaps":                              "must be none, client or server",
		"create configmap a --validate=perhaps":                             "must be strict, warn or ignore",
	} {
		fields := strings.Fields(args)
		for i := range fields {
			fields[i] = strings.ReplaceAll(fields[i], "|", " ")
		}
		got := term.run(append(fields, "--dry-run=client")...)
		if strings.Contains(args, "--dry-run") || args == "create secret" {
			got = term.run(fields...)
		}
		if got.code != 1 || got.out != "" || !strings.Contains(got.err, want) {
			t.Errorf("%s: %+v, want exit code 1 and %q", args, got, want)
		}
	}
}

// TestNamesWithHashes compares names with those of kubectl for the same flags.
func TestNamesWithHashes(t *testing.T) {
	term := &terminal{t: t, kubeconfig: t.TempDir() + "/none"} // no cluster is needed
	binary := write(t, t.TempDir()+"/binary", "\xff\xfe")
	for args, want := range map[string]string{
		"configmap c":                                  "configmap/c-94b26g54cg",
		"configmap c --from-literal=a=b":               "configmap/c-m4h6ctkgb2",
		"configmap c --from-file=b=" + binary:          "configmap/c-hh4hh66c48",
		"secret generic s":                             "secret/s-6cmg28h685",
		"secret generic s --from-literal=a=b --type=x": "secret/s-426t5bkm8k",

		"secret docker-registry d --docker-username=u --docker-password=p": "secret/d-k85gk65kdh",
	} {
		term.want(0, want+"\n", "", append(strings.Fields("create --dry-run=client -o name"), append(strings.Fields(args), "--append-hash")...)...)
	}
}
