#!/bin/sh
# Compiles when the source is newer than the program, so that saving is enough.
# Where there is no Go, build before: go build -o bin/{{name}} .
set -e
program=bin/{{name}}
if [ ! -x "$program" ] || [ -n "$(find . \( -name '*.go' -o -name 'go.*' \) -newer "$program")" ]; then
	mkdir -p bin
	go build -o "$program.$$" . >&2 # stdout is for answers
	mv "$program.$$" "$program"
fi
exec "$program" "$@"
