//go:build !linux

// Command program attacks the place that it runs in; see package attack.
package main

func main() {}
