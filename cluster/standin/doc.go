// Package standin reads the command lines with which envtest of controller-runtime starts kube-apiserver and etcd, so
// that Sampan can be both in tests of controllers.
//
// Under the name etcd ([RunEtcd]) Sampan keeps the directory of the data, answers health checks, and says where the
// directory is. Under the name kube-apiserver ([ParseServer]) it asks for that directory and stores there. So the
// objects outlive a restart of the API server, and end with etcd, as upstream's do. Sampan does not store in
// upstream's etcd, and says so if --etcd-servers is one.
package standin
