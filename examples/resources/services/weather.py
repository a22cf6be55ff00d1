"""Type http: the arguments come in as they are, and any JSON may go out.

The tokens that it takes are the lines of weather.tokens, read at each request,
so that one can be replaced while it runs.
"""

from json import loads
from pathlib import Path

from serving import Service, serve

TOKENS = Path(__file__).with_name("weather.tokens")
SKY = {"Berlin": (18, "clear"), "Oslo": (9, "rain"), "Quito": (21, "clouds")}


class Weather(Service):
    def do_POST(self):
        arguments = loads(self.body())
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in TOKENS.read_text().split():
            return self.answer(401, {"error": "no such token"})
        city = arguments["city"]
        if city not in SKY:
            return self.answer(404, {"error": f"no weather for {city}; there is some for {', '.join(SKY)}"})
        degrees, sky = SKY[city]
        self.answer(200, {"city": city, "degrees": degrees, "sky": sky})


serve(Weather)
