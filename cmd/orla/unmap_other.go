//go:build !linux

package main

// forgetProgram is for Linux alone, where resident memory counts the program itself.
func forgetProgram() {}
