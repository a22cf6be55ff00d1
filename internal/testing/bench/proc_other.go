//go:build !linux

package main

import "errors"

var errNoProc = errors.New("only Linux tells what another process uses")

func cpuOf(int) (cpu, error)         { return cpu{}, errNoProc }
func memoryOf(int) (memory, error)   { return memory{}, errNoProc }
func descriptorsOf(int) (int, error) { return 0, errNoProc }
func switchesOf(int) (int64, error)  { return 0, errNoProc }
func childrenOf(int) ([]int, error)  { return nil, errNoProc }
func exeOf(int) (string, error)      { return "", errNoProc }
