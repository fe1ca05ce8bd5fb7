// Package routes keeps the routes of a node to the pods of the other nodes, which share a link with it: the route to the pod
// networks of a node leads to that node's internal address.
//
//	routes-R1  Routes follow from the Nodes. They are written when a Node or a route of this host changes, and not at intervals.
//	routes-R2  Nodes are not trusted with more than their own pods: a pod network must be within those of the cluster, and the
//	           older of two Nodes with overlapping pod networks has them. Routes never lead to an address of the pods or of
//	           this node.
//	routes-R3  Only routes within the pod networks of the cluster that have this package's protocol number are changed. They
//	           stay when the program ends, because pods do; [Remove] removes them.
//	routes-R4  Packets to an address within the pod networks that no node has are refused, and do not leave by the default
//	           route.
package routes
