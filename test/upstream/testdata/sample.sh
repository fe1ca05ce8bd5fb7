# A cluster with upstream's sample-apiserver beside it, in a network namespace of its own.
set -eu
ip link set lo up
ip addr add 192.0.2.10/32 dev lo
NAME=sample-$$
pids=
end() {
	for pid in $pids; do kill "$pid" 2>/dev/null || true; done
	"$SAMPAN" down --name="$NAME" --purge >/dev/null 2>&1 || true
}
trap end EXIT
kubectl() { "$KUBECTL" "$@" 2>&1 | sed "s/^Warning: .*deprecated.*//; /^$/d"; }

"$SAMPAN" up --name="$NAME" --simulated-nodes=1 --data-dir="$PWD/data" >up.log 2>&1
"$UPSTREAM/etcd" --data-dir=etcd --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
	--listen-peer-urls=http://127.0.0.1:2380 --unsafe-no-fsync --log-level=error >etcd.log 2>&1 &
pids="$pids $!"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout tls.key -out tls.crt -days 2 \
	-subj /CN=api -addext subjectAltName=DNS:api.wardle.svc 2>/dev/null
{
	kubectl create namespace wardle
	kubectl -n wardle create serviceaccount apiserver
	kubectl create clusterrolebinding wardle-delegator --clusterrole=system:auth-delegator --serviceaccount=wardle:apiserver
	kubectl -n kube-system create rolebinding wardle-reader --role=extension-apiserver-authentication-reader --serviceaccount=wardle:apiserver
	kubectl create clusterrole wardle --verb=get,list,watch --resource=namespaces,flowschemas,prioritylevelconfigurations
	kubectl create clusterrolebinding wardle --clusterrole=wardle --serviceaccount=wardle:apiserver
	kubectl create clusterrole wardle-admission --verb=get,list,watch \
		--resource=mutatingwebhookconfigurations,validatingwebhookconfigurations,mutatingadmissionpolicies,mutatingadmissionpolicybindings,validatingadmissionpolicies,validatingadmissionpolicybindings
	kubectl create clusterrolebinding wardle-admission --clusterrole=wardle-admission --serviceaccount=wardle:apiserver
} >setup.log
token=$("$KUBECTL" -n wardle create token apiserver)
server=$("$KUBECTL" config view --minify -o 'jsonpath={.clusters[0].cluster.server}')
"$KUBECTL" config view --raw -o 'jsonpath={.clusters[0].cluster.certificate-authority-data}' | base64 -d >ca.crt
{
	kubectl --kubeconfig=ext config set-cluster c --server="$server" --certificate-authority=ca.crt --embed-certs
	kubectl --kubeconfig=ext config set-credentials u --token="$token"
	kubectl --kubeconfig=ext config set-context c --cluster=c --user=u
	kubectl --kubeconfig=ext config use-context c
} >>setup.log
"$UPSTREAM/sample-apiserver" --etcd-servers=http://127.0.0.1:2379 --secure-port=8443 --bind-address=192.0.2.10 --kubeconfig=ext \
	--authentication-kubeconfig=ext --authorization-kubeconfig=ext --tls-cert-file=tls.crt --tls-private-key-file=tls.key \
	>ext.log 2>&1 &
sample=$!
pids="$pids $sample"
bundle=$(base64 -w0 tls.crt)
for version in v1alpha1 v1beta1; do
	kubectl create -f - <<F
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: $version.wardle.example.com}
spec:
  group: wardle.example.com
  version: $version
  groupPriorityMinimum: 1000
  versionPriority: 15
  caBundle: $bundle
  service: {namespace: wardle, name: api}
F
done
kubectl create -f - <<F
apiVersion: v1
kind: Service
metadata: {name: api, namespace: wardle}
spec: {ports: [{name: https, port: 443, targetPort: 8443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: api, namespace: wardle, labels: {kubernetes.io/service-name: api}}
addressType: IPv4
ports: [{name: https, port: 8443}]
endpoints: [{addresses: [192.0.2.10]}]
F
services="apiservice/v1alpha1.wardle.example.com apiservice/v1beta1.wardle.example.com"
kubectl wait --for=condition=Available $services --timeout=120s
kubectl api-resources --api-group=wardle.example.com -o name
flunder() {
	printf 'apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: %s, labels: {a: b}}\nspec: {reference: fischer}\n' "$1"
}
echo == objects
flunder first | kubectl create -f -
"$KUBECTL" get flunders --watch -o name >watched 2>/dev/null &
watch=$!
pids="$pids $watch"
kubectl get flunders -o 'jsonpath={.items[*].apiVersion} {.items[*].spec.flunderReference}{"\n"}'
kubectl label flunder first c=d
flunder first | kubectl apply --server-side --field-manager=me --force-conflicts -f -
kubectl explain flunders.spec | head -3
echo == admission
printf 'apiVersion: wardle.example.com/v1alpha1\nkind: Fischer\nmetadata: {name: one}\ndisallowedFlunders: [banned]\n' | kubectl create -f -
flunder banned | kubectl create -f -
echo == rights
bob=--as=system:serviceaccount:default:bob
kubectl get flunders $bob
kubectl create role readers --verb=get,list --resource=flunders.wardle.example.com
kubectl create rolebinding readers --role=readers --serviceaccount=default:bob
kubectl get flunders $bob -o name
kubectl delete flunder first $bob
echo == deletion
kubectl delete flunder first
grep -q flunder.wardle.example.com/first watched && echo watched
kubectl create namespace gone
flunder inside | kubectl -n gone create -f -
kubectl delete namespace gone --timeout=60s
kubectl get flunders -A
echo == gone
kill "$sample"
kubectl -n wardle label endpointslice api now=gone
kubectl wait --for=condition=Available=false $services --timeout=60s
kubectl get flunders
kubectl get services -n wardle -o name
