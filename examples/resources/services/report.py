"""Type webhook-callback: a call that takes its time.

It is accepted at once, and asked for by its id until it is done. A service that
is given Orla's address as a second argument says by itself when it is done.
"""

import sys
from base64 import b64encode
from json import dumps, loads
from threading import Timer
from urllib.request import Request, urlopen

from serving import Service, serve

KNOWN = "Basic " + b64encode(b"ada:demo-report").decode()
reports = {}  # by request id; None while one is being written


class Report(Service):
    def do_POST(self):
        request = loads(self.body())
        if self.headers.get("Authorization") != KNOWN:
            return self.answer(401, {"error": "who are you?"})
        reports.setdefault(request["request_id"], None)
        Timer(1, write, [request]).start()
        self.answer(202, {"request_id": request["request_id"], "status": "pending"}, Retry_After="1")

    def do_GET(self):
        request_id = self.path.rsplit("/", 1)[-1]
        if self.headers.get("Authorization") != KNOWN:
            return self.answer(401, {"error": "who are you?"})
        report = reports.get(request_id)
        if report is None:
            return self.answer(202, {"request_id": request_id, "status": "pending"}, Retry_After="1")
        self.answer(200, report)


def write(request):
    text = f"All is well with {request['parameters']['subject']}."
    reports[request["request_id"]] = {"request_id": request["request_id"], "status": "success", "result": text}
    if len(sys.argv) > 2:
        body = dumps(reports[request["request_id"]]).encode()
        urlopen(Request(f"{sys.argv[2]}/callbacks/{request['request_id']}", body, {"Content-Type": "application/json"}))


serve(Report)
