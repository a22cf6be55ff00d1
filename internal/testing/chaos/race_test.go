//go:build race

package main

// detectsRaces says that these tests run with the race detector.
const detectsRaces = true
