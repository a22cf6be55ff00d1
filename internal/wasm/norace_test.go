//go:build !race

package wasm_test

const detectsRaces = false
