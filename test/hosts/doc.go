// Package hosts makes a small network of hosts out of network namespaces: three nodes
// with pods, clients outside, a router and a host for the API server. The tests and
// benchmarks of the service proxy run on it.
//
//	fabric   two switches: wire, where nodes and the client are, and management
//	node1-3  192.168.7.1-3, fd07::1-3; bridge pods with 10.1.N.1, fd01:N::1; 10.9.0.1-3 for management
//	podNa-c  10.1.N.10-12, fd01:N::10-12, behind their node
//	client   192.168.7.100, fd07::100, on the wire
//	router   192.168.7.254, fd07::254; the default route of nodes, and has none itself
//	far      192.168.8.100, fd08::100, behind the router
//	control  10.9.0.100, only on management
//
//	H1  No packet leaves: both ends of every link are in hosts of the network.
//	H2  [World.Close] removes everything, and so does the end of the process: a
//	    namespace lives as long as threads, processes and sockets are in it.
//	H3  Programs that a host runs end with the process that started them.
package hosts
