package main

const sysProcessVMReadv = 270
