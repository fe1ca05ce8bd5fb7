package session

// Foreground is how a verb is connected to a pod that it has made.
type Foreground struct {
	Stdin, TTY bool       // the container gets the user's input, or the user's terminal
	Quiet      bool       // print only the output of the container
	Remove     bool       // delete the pod at the end
	Detach     DetachKeys // the keys that end the connection to a terminal
}
