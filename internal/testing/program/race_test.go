//go:build race

package program

// compiledForRaces says that these tests run with the race detector.
const compiledForRaces = true
