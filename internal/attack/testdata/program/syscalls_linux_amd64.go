package main

const sysProcessVMReadv = 310
