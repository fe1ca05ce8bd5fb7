// Package clustertest starts a cluster for a Go test.
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
// [NewMany] starts clusters that share a process, for tests with many of them.
//
// A [Template] prepares a cluster once for a package of tests, such as by installing definitions and an operator's
// objects, and gives each test a copy of it:
//
//	var prepared = clustertest.Template{Prepare: func(t testing.TB, c *clustertest.Cluster) { install(t, c.Kubeconfig) }}
//
//	func TestOne(t *testing.T) {
//		c := prepared.Fork(t)
//		...
//	}
//
// The cluster and its data are removed at the end of the test, even if the test
// crashes or is killed, because the program stops when its parent process ends.
//
// The program is found by [Options.Program], the environment variable SAMPAN, or
// PATH. The package imports only the standard library.
package clustertest
