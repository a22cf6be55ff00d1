//go:build !race

package main

const detectsRaces = false
