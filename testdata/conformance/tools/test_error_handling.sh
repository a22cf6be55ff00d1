#!/bin/sh
# /// tool
# description: Fail.
# ///
echo "This tool intentionally returns an error for testing"
exit 1
