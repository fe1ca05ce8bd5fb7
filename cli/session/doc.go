// Package session has the parts that all commands share: streams, global flags, flags and
// arguments that select objects, and the connection.
//
//	[Streams]   input and output of a command
//	[Globals]   the global flags; [Globals.Connect] makes a Session
//	[Session]   a server, its API resources and schemas, and the namespace
//	[Input]     the selected objects: -f, -k, -l, TYPE/NAME
//	[DryRun], [Strictness]   the flags --dry-run and --validate
//	[Log]       the flag --log-level of commands that serve
//
// A command embeds *Globals, has its own flags as fields, checks them before it connects,
// and passes the Session on. A Session does not depend on the flags of the command.
package session
