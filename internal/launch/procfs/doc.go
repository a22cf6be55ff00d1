// Package procfs reads what Linux says of processes in /proc: whose child one is,
// its group and session, its environment, what it takes. It knows nothing of what
// Orla has started. Elsewhere the package is empty.
package procfs
