#!/bin/sh
# /// tool
# description: Say a text.
# ///
echo "This is a simple text response for testing."
