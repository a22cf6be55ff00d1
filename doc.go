// Package orla holds no code: the program is in cmd/orla. The tests that stand
// here watch over the structure of the whole module: which package may import
// which, and what every package owes its reader.
package orla
