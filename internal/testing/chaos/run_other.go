//go:build !linux

package main

import "errors"

var errLinux = errors.New("storms need the namespaces of Linux")

func runOutside([]string) error { return errLinux }
func runInside([]string) error  { return errLinux }
func beInit([]string) error     { return errLinux }
func beKernel([]string) error   { return errLinux }
