#!/bin/sh
# /// tool
# description: Show a picture of one point.
# output: mcp
# ///
cat <<'END'
{"content": [{"type": "image", "mimeType": "image/png",
  "data": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"}]}
END
