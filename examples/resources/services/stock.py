"""Type external: the tool contract v1 in both directions.

The first attempt of every call is told to come back later, as a service does
that has too much to do. The request's id is the same in the next attempt.
"""

from json import loads

from serving import Service, serve

SHELF = {"tea": 12, "kettle": 3, "sugar": 0}


class Stock(Service):
    def do_POST(self):
        request = loads(self.body())
        if self.headers.get("X-Api-Key") != "demo-stock":
            return self.answer(403, {"error": "no such key"})
        self.answer(200, {"request_id": request["request_id"], **self.respond(request)})

    def respond(self, request):
        item, attempt = request["parameters"]["item"], request["context"]["attempt"]
        if attempt == 1:
            return error("rate_limited", "the shelf is being counted", retryable=True)
        if item not in SHELF:
            return error("invalid_input", f"there is no {item}, and never was", retryable=False)
        return {"status": "success", "result": {"item": item, "left": SHELF[item], "attempt": attempt}}


def error(code, reason, retryable):
    return {"status": "error", "error": {"tool_code": code, "tool_reason": reason, "retryable": retryable}}


serve(Stock)
