package userspace

// WithoutPipes makes a forwarder that has not started do as if there were no pipes.
func (f *Forwarder) WithoutPipes() { f.pipes = 0 }
