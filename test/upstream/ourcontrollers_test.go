package upstream

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOurControllersOnAnUpstreamServer has `sampan controllers` do all work of upstream's API server on etcd, with the rights
// that upstream's roles give to its controllers.
func TestOurControllersOnAnUpstreamServer(t *testing.T) {
	sampan := program(t, "SAMPAN")
	p := Start(t, Options{Programs: program(t, "UPSTREAM"), Scheduler: sampan, Controllers: sampan, Nodes: 2})
	c := &commands{sampan: sampan, kubeconfig: p.Kubeconfig, home: p.dir}
	// Its kubelet never reports: the node lifecycle controller gives it up after a minute, see the end.
	c.apply(t, "{apiVersion: v1, kind: Node, metadata: {name: ghost, labels: {ghost: 'true'}}}\n")
	// So does the schedule of every minute.
	c.apply(t, cronJob)
	c.on(t, "wait", "serviceaccount/default", "--for=created", "--wait-for-creation", "--timeout=2m")
	c.on(t, "wait", "nodes", "-l", "!ghost", "--for=jsonpath={.spec.taints} absent", "--timeout=2m")

	c.apply(t, `apiVersion: v1
kind: Pod
metadata: {name: lost}
spec:
  nodeName: ghost
  tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}]
  containers: [{name: main, image: any}]
`)

	t.Run("workloads", c.workloads)
	t.Run("jobs", c.jobs)
	t.Run("horizontal pod autoscaler", c.autoscaler)
	t.Run("garbage collection", c.garbage)
	t.Run("custom resources", c.customResources)
	t.Run("namespaces", c.namespaces)
	t.Run("aggregated server", func(t *testing.T) { c.aggregated(t, p) })
	t.Run("quota", c.quota)
	t.Run("accounts and tokens", func(t *testing.T) { c.accounts(t, p) })
	t.Run("certificates", c.certificates)
	t.Run("volumes", c.volumes)
	t.Run("devices", c.devices)
	t.Run("roles and networks", c.rolesAndNetworks)
	t.Run("storage version migration", c.migration)
	t.Run("a node that never reports", func(t *testing.T) {
		c.on(t, "wait", "node/ghost", `--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=NodeStatusNeverUpdated`, "--timeout=3m")
		c.on(t, "wait", "node/ghost", `--for=jsonpath={.spec.taints[?(@.effect=="NoExecute")].key}=node.kubernetes.io/unreachable`, "--timeout=3m")
		c.on(t, "wait", "pod/lost", "--for=jsonpath={.metadata.deletionTimestamp}", "--timeout=1m")
		if why := c.on(t, "get", "pod", "lost", "-o", `jsonpath={.status.conditions[?(@.type=="DisruptionTarget")].reason}`); why != "DeletionByTaintManager" {
			t.Errorf("the reason of the eviction is %q", why)
		}
		c.on(t, "delete", "node/ghost") // then the garbage collector of pods deletes it
		c.on(t, "wait", "pod/lost", "--for=deleted", "--timeout=2m")
	})
	t.Run("a service without pods", func(t *testing.T) {
		c.on(t, "wait", "event", "--field-selector=involvedObject.name=nothing,involvedObject.kind=Service", "--for=created", "--wait-for-creation", "--timeout=2m")
	})
	t.Run("cron job", func(t *testing.T) {
		c.on(t, "wait", "job", "-l", "cron=yes", "--for=complete", "--wait-for-creation", "--timeout=3m")
	})
	if log := read(t, p.manager.log); strings.Contains(log, "is forbidden: User") || strings.Contains(log, "panic") {
		t.Errorf("the log of the controllers:\n%s", log)
	}
}

const cronJob = `apiVersion: batch/v1
kind: CronJob
metadata: {name: often}
spec:
  schedule: "* * * * *"
  jobTemplate:
    metadata: {labels: {cron: "yes"}}
    spec:
      template:
        metadata: {annotations: {sampan.dev/simulated-run-seconds: "1"}}
        spec: {restartPolicy: Never, containers: [{name: main, image: any}]}
`

func (c *commands) workloads(t *testing.T) {
	c.apply(t, `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: main, image: any}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {nodeSelector: {kubernetes.io/os: linux}, containers: [{name: main, image: any}]}}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec:
  replicas: 2
  selector: {app: old}
  template: {metadata: {labels: {app: old}}, spec: {containers: [{name: main, image: any}]}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: nothing}
spec: {selector: {app: nothing}, ports: [{port: 80}]}
---
`+pods("web", 3, ""))
	for _, what := range []string{"deployment/web", "statefulset/db", "daemonset/agent", "rc/old", "service/web"} {
		c.on(t, "wait", what, "--for=ready", "--timeout=3m")
	}
	c.on(t, "wait", "pdb/web", "--for=jsonpath={.status.disruptionsAllowed}=1", "--timeout=1m")
	slices := c.on(t, "get", "endpointslices", "-l", "kubernetes.io/service-name=web", "-o", "jsonpath={.items[*].endpoints[*].conditions.ready}")
	if slices != "true true true" {
		t.Errorf("the endpoints are ready: %q", slices)
	}
	if addresses := strings.Fields(c.kubectl(t, "", "get", "endpoints", "web", "-o", "jsonpath={.subsets[*].addresses[*].ip}")); len(addresses) != 3 {
		t.Errorf("the Endpoints have %q", addresses)
	}
	c.on(t, "scale", "deployment/web", "--replicas=4")
	c.on(t, "wait", "deployment/web", "--for=ready", "--timeout=1m")
	c.kubectl(t, "", "set", "image", "deployment/web", "main=other")
	c.on(t, "wait", "deployment/web", "--for=ready", "--timeout=2m")
	if n := len(strings.Fields(c.on(t, "get", "replicasets", "-l", "app=web", "-o", "name"))); n != 2 {
		t.Errorf("%d ReplicaSets, want 2", n)
	}
}

func (c *commands) jobs(t *testing.T) {
	const template = `template: {metadata: {annotations: {sampan.dev/simulated-run-seconds: "1"%s}}, spec: {restartPolicy: Never, containers: [{name: main, image: any}]}}`
	c.apply(t, fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: done}
spec: {completions: 4, parallelism: 2, %s}
---
apiVersion: batch/v1
kind: Job
metadata: {name: broken}
spec: {backoffLimit: 0, %s}
---
apiVersion: batch/v1
kind: Job
metadata: {name: brief}
spec: {ttlSecondsAfterFinished: 1, %[1]s}
`, fmt.Sprintf(template, ""), fmt.Sprintf(template, `, sampan.dev/simulated-exit-code: "3"`)))
	c.on(t, "wait", "job/done", "--for=complete", "--timeout=2m")
	c.on(t, "wait", "job/broken", "--for=condition=Failed", "--timeout=2m")
	c.on(t, "wait", "job/brief", "--for=deleted", "--timeout=2m")
	if status := c.on(t, "get", "job", "done", "-o", "jsonpath={.status.succeeded} {.status.terminating} {.status.uncountedTerminatedPods}"); status != "4 0 {}" {
		t.Errorf("the status of the job is %q", status)
	}
}

func (c *commands) autoscaler(t *testing.T) {
	c.apply(t, `apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 6
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
`)
	c.on(t, "wait", "hpa/web", `--for=jsonpath={.status.conditions[?(@.type=="AbleToScale")].reason}=SucceededGetScale`, "--timeout=1m")
	c.on(t, "wait", "hpa/web", `--for=jsonpath={.status.conditions[?(@.type=="ScalingActive")].reason}=FailedGetResourceMetric`, "--timeout=1m")
	c.on(t, "delete", "hpa/web")
}

func (c *commands) garbage(t *testing.T) {
	for _, policy := range []string{"background", "foreground"} {
		c.apply(t, pods(policy, 2, ""))
		c.on(t, "wait", "deployment/"+policy, "--for=ready", "--timeout=1m")
		c.kubectl(t, "", "delete", "deployment", policy, "--cascade="+policy, "--timeout=2m")
		if policy == "foreground" {
			if left := c.on(t, "get", "replicasets,pods", "-l", "app="+policy, "-o", "name"); left != "" {
				t.Errorf("after a foreground deletion there are %s", left)
			}
		}
		c.on(t, "wait", "pods", "-l", "app="+policy, "--for=deleted", "--timeout=2m")
		c.on(t, "wait", "replicasets", "-l", "app="+policy, "--for=deleted", "--timeout=2m")
	}
	c.apply(t, pods("orphan", 2, ""))
	c.on(t, "wait", "deployment/orphan", "--for=ready", "--timeout=1m")
	c.kubectl(t, "", "delete", "deployment", "orphan", "--cascade=orphan", "--timeout=2m")
	c.on(t, "wait", "replicasets", "-l", "app=orphan", "--for=jsonpath={.metadata.ownerReferences} absent", "--timeout=1m")
	if left := strings.Fields(c.on(t, "get", "pods", "-l", "app=orphan", "-o", "name")); len(left) != 2 {
		t.Errorf("after an orphaning deletion there are %q", left)
	}
}

const boats = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// customResources checks the garbage collection of objects that custom resources own, and of custom resources.
func (c *commands) customResources(t *testing.T) {
	c.apply(t, boats)
	c.on(t, "wait", "crd/boats.example.com", "--for=condition=Established", "--timeout=1m")
	c.apply(t, "{apiVersion: example.com/v1, kind: Boat, metadata: {name: owner}}\n")
	uid := c.on(t, "get", "boats", "owner", "-o", "jsonpath={.metadata.uid}")
	owned := func(kind, version, name string) string {
		return fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: %s, ownerReferences: [{apiVersion: example.com/v1, kind: Boat, name: owner, uid: %s}]}}\n---\n", version, kind, name, uid)
	}
	c.apply(t, owned("ConfigMap", "v1", "map")+owned("Boat", "example.com/v1", "tender"))
	c.on(t, "delete", "boat/owner", "--timeout=1m")
	c.on(t, "wait", "configmap/map", "--for=deleted", "--timeout=1m")
	c.on(t, "wait", "boat/tender", "--for=deleted", "--timeout=1m")
	// With the definition its objects are gone, and so are the objects that they own.
	c.apply(t, "{apiVersion: example.com/v1, kind: Boat, metadata: {name: owner}}\n")
	uid = c.on(t, "get", "boats", "owner", "-o", "jsonpath={.metadata.uid}")
	c.apply(t, owned("ConfigMap", "v1", "map"))
	c.on(t, "delete", "crd/boats.example.com", "--timeout=1m")
	c.on(t, "wait", "configmap/map", "--for=deleted", "--timeout=1m")
}

func (c *commands) namespaces(t *testing.T) {
	c.apply(t, boats)
	c.on(t, "wait", "crd/boats.example.com", "--for=condition=Established", "--timeout=1m")
	c.apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: brief}}\n")
	c.on(t, "wait", "serviceaccount/default", "-n", "brief", "--for=created", "--wait-for-creation", "--timeout=1m")
	c.on(t, "wait", "configmap/kube-root-ca.crt", "-n", "brief", "--for=created", "--wait-for-creation", "--timeout=1m")
	c.apply(t, "{apiVersion: example.com/v1, kind: Boat, metadata: {name: held, namespace: brief, finalizers: [example.com/hold]}}\n---\n"+
		"{apiVersion: example.com/v1, kind: Boat, metadata: {name: free, namespace: brief}}\n---\n"+
		strings.ReplaceAll(pods("web", 2, ""), "{name: web}", "{name: web, namespace: brief}"))
	c.on(t, "wait", "deployment/web", "-n", "brief", "--for=ready", "--timeout=1m")
	c.on(t, "delete", "namespace/brief", "--wait=false")
	c.on(t, "wait", "namespace/brief", `--for=jsonpath={.status.conditions[?(@.type=="NamespaceFinalizersRemaining")].message}=Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances`, "--timeout=2m")
	c.on(t, "wait", "boat/free", "-n", "brief", "--for=deleted", "--timeout=1m")
	c.kubectl(t, "", "patch", "boat", "held", "-n", "brief", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	c.on(t, "wait", "namespace/brief", "--for=deleted", "--timeout=2m")
}

// aggregated has the server of an APIService be away while a namespace is deleted.
func (c *commands) aggregated(t *testing.T, p *Plane) {
	c.apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: behind}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.whales.example.com}
spec: {group: whales.example.com, version: v1, groupPriorityMinimum: 10, versionPriority: 10, service: {name: none, namespace: default}}
`)
	c.on(t, "wait", "apiservice/v1.whales.example.com", "--for=condition=Available=False", "--timeout=1m")
	c.on(t, "delete", "namespace/behind", "--wait=false")
	c.on(t, "wait", "namespace/behind", `--for=jsonpath={.status.conditions[?(@.type=="NamespaceDeletionDiscoveryFailure")].status}=True`, "--timeout=1m")
	c.on(t, "delete", "apiservice/v1.whales.example.com")
	c.on(t, "wait", "namespace/behind", "--for=deleted", "--timeout=3m")
}

func (c *commands) quota(t *testing.T) {
	c.apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: small}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: most, namespace: small}
spec: {hard: {pods: "3", requests.cpu: "1", count/boats.example.com: "2", count/configmaps: "5"}}
`)
	c.on(t, "wait", "resourcequota/most", "-n", "small", "--for=jsonpath={.status.used.pods}=0", "--timeout=1m")
	c.apply(t, strings.ReplaceAll(pods("web", 5, "cpu: 100m"), "metadata: {name: web}", "metadata: {name: web, namespace: small}")+
		"---\n{apiVersion: example.com/v1, kind: Boat, metadata: {name: a, namespace: small}}\n")
	c.on(t, "wait", "resourcequota/most", "-n", "small", "--for=jsonpath={.status.used.pods}=3", "--timeout=1m")
	c.on(t, "wait", "resourcequota/most", "-n", "small", "--for=jsonpath={.status.used.requests\\.cpu}=300m", "--timeout=1m")
	c.on(t, "wait", "resourcequota/most", "-n", "small", "--for=jsonpath={.status.used.count/boats\\.example\\.com}=1", "--timeout=1m")
	c.on(t, "delete", "boat/a", "-n", "small")
	c.on(t, "wait", "resourcequota/most", "-n", "small", "--for=jsonpath={.status.used.count/boats\\.example\\.com}=0", "--timeout=1m")
	c.on(t, "delete", "namespace/small", "--timeout=2m")
}

func (c *commands) accounts(t *testing.T, p *Plane) {
	c.on(t, "wait", "configmap/kube-root-ca.crt", "--for=created", "--wait-for-creation", "--timeout=1m")
	if ca := c.on(t, "get", "configmap", "kube-root-ca.crt", "-o", `jsonpath={.data.ca\.crt}`); ca != read(t, p.file("ca.pem")) {
		t.Errorf("the root certificate is %s", ca)
	}
	c.on(t, "wait", "clustertrustbundles", "--all", "--for=jsonpath={.spec.signerName}=kubernetes.io/kube-apiserver-serving", "--wait-for-creation", "--timeout=1m")
	c.apply(t, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata: {name: robot, annotations: {kubernetes.io/service-account.name: robot}}
`)
	c.on(t, "wait", "secret/robot", "--for=jsonpath={.data.token}", "--timeout=1m")
	token, err := base64.StdEncoding.DecodeString(c.on(t, "get", "secret", "robot", "-o", "jsonpath={.data.token}"))
	if err != nil {
		t.Fatal(err)
	}
	who := c.kubectl(t, "", "auth", "whoami", "--server="+p.url, "--certificate-authority="+p.file("ca.pem"), "--token="+string(token), "--kubeconfig=/dev/null", "-o", "jsonpath={.status.userInfo.username}")
	if who != "system:serviceaccount:default:robot" {
		t.Errorf("the token is that of %q", who)
	}
	c.on(t, "delete", "serviceaccount/robot")
	c.on(t, "wait", "secret/robot", "--for=deleted", "--timeout=1m")

	c.apply(t, `apiVersion: v1
kind: Secret
type: bootstrap.kubernetes.io/token
metadata: {name: bootstrap-token-abcdef, namespace: kube-system}
stringData: {token-id: abcdef, token-secret: 0123456789abcdef, usage-bootstrap-signing: "true", usage-bootstrap-authentication: "true", auth-extra-groups: "system:bootstrappers:tests"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cluster-info, namespace: kube-public}
data: {kubeconfig: anything}
`)
	c.on(t, "wait", "configmap/cluster-info", "-n", "kube-public", "--for=jsonpath={.data.jws-kubeconfig-abcdef}", "--timeout=1m")
	c.kubectl(t, "", "patch", "secret", "bootstrap-token-abcdef", "-n", "kube-system", "--type=merge", "-p", `{"stringData":{"expiration":"2001-01-01T00:00:00Z"}}`)
	c.on(t, "wait", "secret/bootstrap-token-abcdef", "-n", "kube-system", "--for=deleted", "--timeout=1m")
}

func (c *commands) certificates(t *testing.T) {
	c.apply(t, signingRequest(t, "node", "kubernetes.io/kube-apiserver-client-kubelet", pkix.Name{CommonName: "system:node:far", Organization: []string{"system:nodes"}}))
	c.on(t, "wait", "csr/node", "--for=jsonpath={.status.certificate}", "--timeout=1m") // approved, because its author may
	if reason := c.on(t, "get", "csr", "node", "-o", "jsonpath={.status.conditions[0].reason}"); reason != "AutoApproved" {
		t.Errorf("the reason of the approval is %q", reason)
	}
	c.apply(t, signingRequest(t, "user", "kubernetes.io/kube-apiserver-client", pkix.Name{CommonName: "jane"}))
	c.kubectl(t, "", "certificate", "approve", "user")
	c.on(t, "wait", "csr/user", "--for=jsonpath={.status.certificate}", "--timeout=1m")
	block, err := base64.StdEncoding.DecodeString(c.on(t, "get", "csr", "user", "-o", "jsonpath={.status.certificate}"))
	if err != nil {
		t.Fatal(err)
	}
	der, _ := pem.Decode(block)
	if der == nil {
		t.Fatalf("no certificate in %s", block)
	}
	cert, err := x509.ParseCertificate(der.Bytes)
	if err != nil || cert.Subject.CommonName != "jane" {
		t.Errorf("the certificate is for %v: %v", cert.Subject, err)
	}
}

func signingRequest(t *testing.T, name, signer string, subject pkix.Name) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	return fmt.Sprintf("{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: %s}, spec: {signerName: %s, usages: [digital signature, client auth], request: %s}}\n", name, signer, text)
}

func (c *commands) volumes(t *testing.T) {
	c.apply(t, `apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, storageClassName: "", hostPath: {path: /tmp/disk}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
	c.on(t, "wait", "pvc/data", "--for=jsonpath={.status.phase}=Bound", "--timeout=1m")
	c.on(t, "wait", "pv/disk", "--for=jsonpath={.status.phase}=Bound", "--timeout=1m")
	if f := c.on(t, "get", "pvc", "data", "-o", "jsonpath={.metadata.finalizers}"); !strings.Contains(f, "kubernetes.io/pvc-protection") {
		t.Errorf("the finalizers of the claim are %s", f)
	}
	c.apply(t, `apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  containers: [{name: main, image: any}]
  volumes: [{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: none, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}, {name: data, persistentVolumeClaim: {claimName: data}}]
`)
	c.on(t, "wait", "pvc/user-scratch", "--for=created", "--wait-for-creation", "--timeout=1m")
	c.on(t, "delete", "pvc/data", "--wait=false")
	c.on(t, "delete", "pod/user", "--timeout=1m")
	c.on(t, "wait", "pvc/data", "--for=deleted", "--timeout=1m")
	c.on(t, "wait", "pvc/user-scratch", "--for=deleted", "--timeout=1m")
	c.on(t, "wait", "pv/disk", "--for=jsonpath={.status.phase}=Released", "--timeout=1m")
}

func (c *commands) devices(t *testing.T) {
	c.apply(t, `apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: render}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
  containers: [{name: main, image: any, resources: {claims: [{name: gpu}]}}]
`)
	c.on(t, "wait", "pod/render", "--for=jsonpath={.status.resourceClaimStatuses[0].resourceClaimName}", "--timeout=1m")
	c.on(t, "delete", "pod/render", "--timeout=1m")
	c.on(t, "wait", "resourceclaims", "--all", "--for=deleted", "--timeout=1m")
}

func (c *commands) rolesAndNetworks(t *testing.T) {
	c.on(t, "wait", "clusterrole/admin", "--for=jsonpath={.rules[0].verbs}", "--timeout=1m")
	c.apply(t, "{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: more}, spec: {cidrs: [10.77.0.0/24]}}\n")
	c.on(t, "wait", "servicecidr/more", "--for=condition=Ready", "--timeout=1m")
	c.on(t, "delete", "servicecidr/more", "--timeout=2m")
}

func (c *commands) migration(t *testing.T) {
	c.apply(t, "{apiVersion: storagemigration.k8s.io/v1, kind: StorageVersionMigration, metadata: {name: maps}, spec: {resource: {group: '', resource: configmaps}}}\n")
	c.on(t, "wait", "storageversionmigration/maps", "--for=condition=Succeeded", "--timeout=2m")
}

// TestOurControllersElectALeader kills the leader of two instances, as kill -9 does.
func TestOurControllersElectALeader(t *testing.T) {
	sampan := program(t, "SAMPAN")
	p := Start(t, Options{Programs: program(t, "UPSTREAM"), Scheduler: sampan, Controllers: sampan, Nodes: 1})
	c := &commands{sampan: sampan, kubeconfig: p.Kubeconfig, home: p.dir}
	p.manager.end()
	holder := func() string {
		return c.on(t, "get", "lease", "kube-controller-manager", "-n", "kube-system", "-o", "jsonpath={.spec.holderIdentity}")
	}
	first := p.runControllers("first-controllers")
	c.on(t, "wait", "nodes", "--all", "--for=jsonpath={.spec.taints} absent", "--timeout=2m")
	c.apply(t, pods("first", 3, ""))
	c.on(t, "wait", "deployment/first", "--for=ready", "--timeout=2m")
	leader := holder()
	next := p.runControllers("next-controllers")
	first.end() // it gives nothing back
	c.on(t, "scale", "deployment/first", "--replicas=5")
	c.on(t, "wait", "deployment/first", "--for=ready", "--timeout=2m")
	if now := holder(); leader == "" || now == leader {
		t.Errorf("the lease is held by %q, before by %q", now, leader)
	}
	// Upstream's controllers compete for the same Lease. After an interrupt ours gives it back, and ends without an error.
	p.run("kube-controller-manager", filepath.Join(p.opts.Programs, "kube-controller-manager"), append(p.managerFlags(), "--secure-port=0")...)
	if err := next.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-next.done
	if code := next.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the exit code is %d", code)
	}
	c.on(t, "scale", "deployment/first", "--replicas=6")
	c.on(t, "wait", "deployment/first", "--for=ready", "--timeout=2m")
	names := strings.Fields(c.on(t, "get", "pods", "-o", `jsonpath={.items[*].metadata.name}`))
	if len(names) != 6 {
		t.Errorf("the pods are %q, want 6", names)
	}
}

func (c *commands) kubectl(t *testing.T, input string, args ...string) string {
	t.Helper()
	kubeconfig := "--kubeconfig=" + c.kubeconfig
	if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--kubeconfig=") }) {
		kubeconfig = "--v=0"
	}
	cmd := exec.CommandContext(t.Context(), program(t, "KUBECTL"), append(args, kubeconfig)...)
	cmd.Env, cmd.Stdin = append(os.Environ(), "HOME="+c.home), strings.NewReader(input)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
