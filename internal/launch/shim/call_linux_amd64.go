package shim

const sysSeccomp = 317
