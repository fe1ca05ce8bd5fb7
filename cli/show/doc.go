// Package show prints objects: what -o says, and tables laid out as kubectl does.
//
// Nothing is asked of a server here; the tables of the server are cells for [Table].
package show
