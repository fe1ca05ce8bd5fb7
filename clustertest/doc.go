// Package clustertest gives Go tests a real cluster of their own.
//
//	func TestController(t *testing.T) {
//		c := clustertest.New(t, clustertest.Options{})
//		cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
//		...
//	}
//
// [New] runs the program sampan, which serves the Kubernetes API and has
// scheduler, controllers and nodes, and returns when it is ready, which takes
// well under a second. By default the nodes are simulated: pods go through their
// life without containers, and no root is needed. With [Options.Real] there is one
// node with real containers.
//
// The cluster is gone with the test, its data too: at the end of the test, and
// also when the test crashes or is killed, because the program sees the end of its
// parent.
//
// The program is found through [Options.Program], the environment variable SAMPAN, or
// PATH. The package itself needs nothing but the standard library.
package clustertest
