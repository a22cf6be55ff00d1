"""Type http with OAuth2: a token endpoint, and a service that wants its tokens."""

from base64 import b64encode
from json import loads
from secrets import token_urlsafe
from time import monotonic
from urllib.parse import parse_qs

from serving import Service, serve

CLIENT = {"client_id": ["orla"], "client_secret": ["demo-rates"]}
BASIC = "Basic " + b64encode(b"orla:demo-rates").decode()
LIFE = 60  # seconds
RATES = {"EUR": 1.0, "USD": 1.08, "CHF": 0.95}
tokens = {}  # when each ends


class Rates(Service):
    def do_POST(self):
        body = self.body()
        if self.path == "/token":
            return self.token(parse_qs(body.decode()))
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if tokens.get(token, 0) < monotonic():
            return self.answer(401, {"error": "no such token, or an old one"})
        currency = loads(body)["currency"]
        self.answer(200, {"currency": currency, "per_euro": RATES[currency]})

    def token(self, form):
        shown = {key: form.get(key) for key in CLIENT}
        if self.headers.get("Authorization") != BASIC and shown != CLIENT:
            return self.answer(401, {"error": "invalid_client"})
        token = token_urlsafe()
        tokens[token] = monotonic() + LIFE
        self.answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": LIFE})


serve(Rates)
