// Package streaming serves the streams of CRI (exec, attach, port-forward) over HTTP on a loopback address.
//
// A call of CRI makes a URL. The client of CRI, or another client that gets the URL from it, opens it once within a
// minute and upgrades the connection to SPDY or to a WebSocket. Package streams serves the protocols, which are the kubelet's.
// A [Handler] does the work.
//
//	S1  The only secret of a URL is its token: 128 random bits, good for one request.
//	S2  The context of a handler is cancelled when its client disconnects, with the cause of [Options], and when the
//	    server stops.
//	S3  A panic of a handler ends its stream only.
//	S4  A server does not listen on a port whose connections go elsewhere, by [Options.Avoid]. Its owner sees to it that none
//	    does later: see [Server.Port].
//	S5  Forwarded connections leave file descriptors for the rest of the runtime, and those to one pod leave a few for other pods.
package streaming
