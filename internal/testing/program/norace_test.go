//go:build !race

package program

const detectsRaces = false
