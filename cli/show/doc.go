// Package show prints objects in the formats of -o, and tables with kubectl's layout.
//
// It sends no requests; [Table] prints the tables of the server.
package show
