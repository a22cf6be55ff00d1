#!/bin/sh
# Arguments arrive as --name value, and as one JSON object on stdin.
while [ $# -gt 0 ]; do
  case $1 in
    --name) name=$2; shift ;;
  esac
  shift
done
echo "Hello, ${name:-world}!"
