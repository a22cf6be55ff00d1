// Package procfs reads from /proc what Linux reports about a process: its parent, group and session,
// its environment and its usage. It does not know which processes Orla has started. On other systems
// the package is empty.
package procfs
