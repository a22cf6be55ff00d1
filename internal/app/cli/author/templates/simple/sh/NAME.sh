#!/bin/sh
# /// tool
# description: Greet somebody. # what models read: say what it does, and when to use it
# input_schema:
#   name: string # one line for each argument; a ? after the type makes it optional
# annotations:
#   readOnlyHint: true
# ///

# Arguments arrive as --name value here, and as one JSON object on stdin.
while [ $# -gt 0 ]; do
	case $1 in
	--name) name=$2 ;;
	esac
	shift 2
done

# stdout is the answer. An exit code other than 0 makes it an error.
echo "Hello, $name!"
