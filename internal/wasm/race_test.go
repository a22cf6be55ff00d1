//go:build race

package wasm_test

// detectsRaces says that these tests run with the race detector.
const detectsRaces = true
