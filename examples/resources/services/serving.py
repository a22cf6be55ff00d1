"""What the services here share: JSON over HTTP, by Python's own library."""

import json
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # a connection serves many calls
    wbufsize = -1  # head and body leave together

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status, value=None, **headers):
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        if body:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, text, *args):
        say(f"{type(self).__name__.lower()}: {text % args}")


def say(line):
    sys.stderr.write(line + "\n")  # in one piece, as others write there too


def serve(handler):
    """Serves until it is told to stop, on the port that is the only argument."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    name, port = handler.__name__.lower(), int(sys.argv[1])
    ThreadingHTTPServer.daemon_threads = True
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as err:
        sys.exit(f"{name}: port {port}: {err.strerror}")
    say(f"{name}: listens on http://127.0.0.1:{port}")
    server.serve_forever()
