// Command scheduler is a scheduler of one's own: Sampan's, with one more plug-in.
package main

import (
	"os"

	"github.com/sampan-io/sampan/scheduler/alone"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

func main() { os.Exit(alone.Main(plugin.Entry{Plugin: Quiet{}, Weight: 5})) }
