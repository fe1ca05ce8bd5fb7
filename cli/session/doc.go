// Package session is what every verb begins with: its streams, the flags that all verbs
// share, what flags and arguments say about objects, and a connection.
//
//	[Streams]   what a command reads and writes
//	[Globals]   the flags that every verb has; [Globals.Connect] makes a Session
//	[Session]   a server, the namespace to work in, and what the server says of its kinds
//	[Input]     which objects are meant: -f, -k, -l, TYPE/NAME
//	[DryRun], [Strictness]   the flags --dry-run and --validate
//
// A verb embeds *Globals, reads its own flags into fields of its own, checks them before
// it connects, and passes the Session down. A Session does not know the flags of the verb.
package session
