//go:build !linux

package launch_test

// refuse is for Linux alone.
func refuse(string, []string) { panic("no system call can be refused here") }

// standInFirst is for Linux alone.
func standInFirst(string) { panic("there are no containers here") }

// standInCrowd is for Linux alone.
func standInCrowd(string) { panic("what is left cannot be told here") }

// standInFinish is for Linux alone.
func standInFinish(string) { panic("no system call can be refused here") }

// standInRun is for Linux alone.
func standInRun(string) { panic("no system call can be refused here") }

// standInCell is of no use here: there are no cgroups.
func standInCell(string) {}
