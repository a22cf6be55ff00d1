package main

const (
	sysProcessVMReadv = 270
	sysMemfdCreate    = 279
	sysPrlimit        = 261
)
