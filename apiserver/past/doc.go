// Package past answers questions about earlier states of the objects: their states at a time, and which writes
// changed them. It reads the superseded writes that the store keeps, decodes them as objects, and serves the path of
// the history. Operations use it for reads with the parameter at.
package past
