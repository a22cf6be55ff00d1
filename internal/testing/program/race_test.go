//go:build race

package program

// detectsRaces says that these tests run with the race detector.
const detectsRaces = true
