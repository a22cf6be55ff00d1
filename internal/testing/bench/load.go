package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// spareFiles are the descriptors that a bench or an Orla needs beside its connections.
const spareFiles = 700

// measureLoad measures what many clients cost, and what one of them that
// misbehaves costs the others.
func measureLoad(ctx context.Context, b *bench) ([]table, error) {
	if err := raiseFiles(); err != nil {
		return nil, err
	}
	dir, err := b.loadTools()
	if err != nil {
		return nil, err
	}
	var tables []table
	for _, part := range []func(context.Context, string) (table, error){b.measureActive, b.measureFloods, b.measureIdle} {
		t, err := part(ctx, dir)
		if err != nil {
			return tables, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// raiseFiles raises the limit of descriptors, for this process and those that it
// starts, as far as it goes.
func raiseFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// connections is how many of n connections fit into this process's limit of
// descriptors, which is Orla's too.
func connections(n int) (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	fit := int(min(limit.Cur, 1<<20)) - spareFiles
	if fit < 1 {
		return 0, errors.New("the limit of descriptors leaves room for no connection")
	}
	return min(n, fit), nil
}

// each is a part of a size, for each of n.
func each(size int64, n int) string {
	return fmt.Sprintf("%.1f KiB", float64(size)/1024/float64(max(1, n)))
}
