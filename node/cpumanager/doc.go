// Package cpumanager reads which processors a machine has.
package cpumanager
