#!/bin/sh
# A test that copies this folder says where the interpreter is that has the SDK.
exec "${MCP_PYTHON:-.venv/bin/python}" server.py
