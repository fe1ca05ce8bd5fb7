package manifest_test

import "testing"

// TestRefusals has a command line for each error that a form, or run, makes of its arguments.
func TestRefusals(t *testing.T) {
	for line, want := range map[string]string{
		"create configmap a --from-literal=b":                           "invalid literal source b, expected key=value",
		"create configmap a --from-literal==b":                          "invalid literal source =b, expected key=value",
		"create configmap a --from-literal=b=1 --from-literal=b=2":      `cannot add key "b", another key by that name already exists in Data for ConfigMap "a"`,
		"create configmap a --from-literal=b/c=1":                       `"b/c" is not a valid key name for a ConfigMap "a": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`,
		"create configmap a --from-file=testdata/in/none":               "error reading testdata/in/none: stat testdata/in/none: no such file or directory",
		"create configmap a --from-file=b=testdata/in/dir":              "cannot give a key name for a directory path: b=testdata/in/dir",
		"create configmap a --from-file==testdata/in/dir":               "--from-file==testdata/in/dir: want PATH or KEY=PATH",
		"create configmap a --from-file=b=c=d":                          "--from-file=b=c=d: want PATH or KEY=PATH",
		"create configmap a --from-env-file=testdata/in/none":           "error reading testdata/in/none: open testdata/in/none: no such file or directory",
		"create configmap a --from-env-file=testdata/in/docker.json":    `testdata/in/docker.json, line 1: "{\"auths\":{\"registry.example.com\":{\"auth\":\"dTpw\"}}}" is not a valid key name: a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is '[-._a-zA-Z][-._a-zA-Z0-9]*')`,
		"create secret generic a --from-env-file=b --from-literal=c=d":  "from-env-file cannot be combined with from-file or from-literal",
		"create secret tls a --cert=b":                                  "key and cert must be specified",
		"create secret docker-registry a --docker-username=u":           "either --from-file or the combination of --docker-username, --docker-password and --docker-server is required",
		"create secret docker-registry a --from-file=testdata/in/dir/x": "--from-file: must be one JSON file",
		"create secret docker-registry a --from-file=b,c":               "error reading b: stat b: no such file or directory",

		"create deployment a":                          "required flag(s) \"image\" not set",
		"create deployment a --image=b --image=c -- d": "cannot specify multiple --image options and command",
		"create deployment a --image=b --replicas=-1":  "--replicas=-1: want 0 or more",

		"create job a": "either --image or --from must be specified",
		"create job a --image=b --from=cronjob/c":                 "either --image or --from must be specified",
		"create job a --from=cronjob/b -- c":                      "cannot specify --from and command",
		"create cronjob a --image=b":                              "required flag(s) \"schedule\" not set",
		"create service clusterip a":                              "at least one tcp port specifier must be provided",
		"create service nodeport a":                               "at least one tcp port specifier must be provided",
		"create service nodeport a --tcp=0":                       "--tcp=0: want PORT or PORT:TARGET, with numbers from 1 to 65535 or the name of a port as the target",
		"create service nodeport a --tcp=80:":                     "--tcp=80:: want PORT or PORT:TARGET, with numbers from 1 to 65535 or the name of a port as the target",
		"create service loadbalancer a --tcp=80:65536":            "--tcp=80:65536: want PORT or PORT:TARGET, with numbers from 1 to 65535 or the name of a port as the target",
		"create service externalname a":                           "required flag(s) \"external-name\" not set",
		"create service externalname a --external-name=b --tcp=c": "--tcp=c: want PORT or PORT:TARGET, with numbers from 1 to 65535 or the name of a port as the target",

		"create ingress a":                                                                  "not enough information provided: every ingress has to either specify a default-backend (which catches all traffic) or a list of rules (which catch specific paths)",
		"create ingress a --default-backend=b":                                              "default-backend should be in format servicename:serviceport",
		"create ingress a --rule=b":                                                         "rule b is invalid and should be in format host/path=svcname:svcport[,tls[=secret]]",
		"create ingress a --rule=b/c,d=e:80":                                                "rule b/c,d=e:80 is invalid and should be in format host/path=svcname:svcport[,tls[=secret]]",
		"create ingress a --default-backend=b:1 --annotation=c":                             "annotation c is invalid and should be in format key=[value]",
		"create quota a --hard=cpu":                                                         "Invalid argument syntax cpu, expected <resource>=<value>",
		"create quota a --hard=cpu=b":                                                       "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
		"create quota a --scopes=BestEffort,":                                               `invalid resource quota scope ""`,
		"create poddisruptionbudget a --min-available=1":                                    "a selector must be specified",
		"create poddisruptionbudget a --selector=b=c":                                       "one of min-available or max-unavailable must be specified",
		"create poddisruptionbudget a --selector=b=c --min-available=1 --max-unavailable=1": "min-available and max-unavailable cannot be both specified",
		"create poddisruptionbudget a --selector=b=c --min-available=-1":                    "invalid format specified for min-available",
		"create poddisruptionbudget a --selector=b=c --max-unavailable=half":                "invalid format specified for max-unavailable",
		"create poddisruptionbudget a --selector=b!=c --max-unavailable=1":                  `"!=" is not a valid label selector operator`,
		"create priorityclass a --value=b":                                                  `invalid argument "b" for "--value" flag: strconv.ParseInt: parsing "b": invalid syntax`,

		"create role a --resource=pods":                                      "at least one verb must be specified",
		"create role a --verb=get":                                           "at least one resource must be specified",
		"create role a --verb=get --resource=.apps":                          "resource must be specified if apiGroup/subresource specified",
		"create role a --verb=bind --resource=pods":                          "can not perform 'bind' on 'pods' in group ''",
		"create clusterrole a --resource=pods":                               "at least one verb must be specified",
		"create clusterrole a --verb=get":                                    "one of resource or nonResourceURL must be specified",
		"create clusterrole a --verb=list --non-resource-url=/b":             "invalid verb: 'list' for nonResourceURL",
		"create clusterrole a --verb=get --non-resource-url=b":               "nonResourceURL should start with /",
		"create clusterrole a --verb=get --non-resource-url=/b/*/c":          "nonResourceURL only supports wildcard matches when '*' is at the end",
		"create clusterrole a --aggregation-rule=b=c --verb=get":             "aggregation rule must be specified without nonResourceURLs, verbs, resources or resourceNames",
		"create clusterrole a --aggregation-rule=b":                          `invalid argument "b" for "--aggregation-rule" flag: malformed pair, expect string=string`,
		"create rolebinding a":                                               "exactly one of clusterrole or role must be specified",
		"create rolebinding a --role=b --clusterrole=c":                      "exactly one of clusterrole or role must be specified",
		"create rolebinding a --role=b --serviceaccount=c":                   "serviceaccount must be <namespace>:<name>",
		"create clusterrolebinding a --user=b":                               "required flag(s) \"clusterrole\" not set",
		"create clusterrolebinding a --clusterrole=b --serviceaccount=c:d:e": "serviceaccount must be <namespace>:<name>",

		"run a":                                             "--image is required",
		"run a --image=b -t":                                "-i/--stdin is required for containers with -t/--tty=true",
		"run a --image=b --expose":                          "--port must be set when exposing a service",
		"run a --image=b --port=http":                       "--port must be a number",
		"run a --image=b --port=0":                          "--port=0: want a number from 1 to 65535",
		"run a --image=b --command":                         "--command needs a command after --",
		"run a --image=b --env=C":                           "invalid env: C, want NAME=VALUE",
		"run a --image=b --labels=c":                        `unexpected label spec: "c", want NAME=VALUE`,
		"run a --image=b --annotations=c --annotations=d=e": "invalid annotations format: c",
		"run a --image=b --image-pull-policy=Often":         "invalid image pull policy: Often, valid values are: Always, IfNotPresent, Never",
		"run a --image=b --restart=Sometimes":               "invalid restart policy: Sometimes, valid values are: Always, OnFailure, Never",
	} {
		if objs, err := new(maker).make(line); err == nil || err.Error() != want {
			t.Errorf("%s: %v, %v\nwant %s", line, objs, err, want)
		}
	}
}
