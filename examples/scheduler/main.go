// Command scheduler is a scheduler of one's own: Sampan's, with one more plug-in.
package main

import (
	"os"

	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/standalone"
)

func main() { os.Exit(standalone.Main(plugin.Entry{Plugin: Quiet{}, Weight: 5})) }
