// Package storytest plays stories: text files of commands, line by line, and their results.
//
// A line that begins with ">" is the answer to the line above. A line that begins with "#" is a
// comment. The test defines what the others mean. A test plays the file without its answers, and
// the resulting file must equal the original:
//
//	node a cpu=1000
//	schedule web-1 cpu=400
//	> assigned to a (score 60)
//
// With -update the stories are written again. Then read the difference: it is the review.
//
// It is a test kit: only tests and kits import it. It defines no commands.
package storytest
