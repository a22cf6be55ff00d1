package main

const (
	sysProcessVMReadv = 310
	sysMemfdCreate    = 319
)
