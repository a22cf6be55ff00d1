package main

const (
	sysProcessVMReadv = 270
	sysMemfdCreate    = 279
)
