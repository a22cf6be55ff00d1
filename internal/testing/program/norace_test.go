//go:build !race

package program

const compiledForRaces = false
