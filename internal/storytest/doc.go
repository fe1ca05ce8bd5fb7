// Package storytest plays stories: text files that say what is done, line by line,
// and what came of it.
//
// A line that begins with ">" is an answer, and stands below the line that it
// answers. A line that begins with "#" is a comment. What the others mean is for
// the test to say. A test plays the file without its answers, and the file that
// comes out must be the one that went in:
//
//	node a cpu=1000
//	schedule web-1 cpu=400
//	> assigned to a (score 60)
//
// With -update the stories are written anew. Then read the difference: it is the
// review.
//
// It is a test kit: only tests and kits import it. It knows no commands.
package storytest
