package main

const (
	sysProcessVMReadv = 310
	sysMemfdCreate    = 319
	sysPrlimit        = 302
)
