"""A folder of notes and the words that are in them."""

import os
import re
import threading

from wire import Trouble


class Notes:
    """All methods may be called from several threads."""

    def __init__(self, folder):
        self.folder = folder
        self.texts = {}  # name -> text
        self.words = {}  # word -> names of the notes that have it
        self.lock = threading.Lock()

    def names(self):
        if not os.path.isdir(self.folder):
            return []
        return sorted(file[:-3] for file in os.listdir(self.folder) if file.endswith(".md") and not file.startswith("."))

    def load(self, name):
        with open(self._file(name), encoding="utf-8", errors="replace") as f:
            text = f.read()
        with self.lock:
            self._forget(name)
            self.texts[name] = text
            for word in _words(name + "\n" + text):
                self.words.setdefault(word, set()).add(name)

    def forget_all_but(self, names):
        with self.lock:
            for name in set(self.texts) - set(names):
                self._forget(name)

    def search(self, query):
        wanted = _words(query)
        with self.lock:
            found = set.intersection(*(self.words.get(word, set()) for word in wanted)) if wanted else set()
            hits = [(name, self.texts[name]) for name in found]
        scored = sorted((-sum(len(re.findall(re.escape(w), text, re.I)) for w in wanted), name, text) for name, text in hits)
        return [{"name": name, "line": _line(text, wanted)} for _, name, text in scored]

    def read(self, name):
        with self.lock:
            if name not in self.texts:
                raise Trouble(f"There is no note {name!r}; search finds names, refresh looks for new ones.")
            return self.texts[name]

    def write(self, name, text, append):
        file = self._file(name)
        os.makedirs(self.folder, exist_ok=True)
        if append and os.path.exists(file):
            with open(file, encoding="utf-8") as f:
                text = f.read().rstrip("\n") + "\n\n" + text
        with open(file + ".tmp", "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(file + ".tmp", file)  # a note is never half written, whenever we are stopped
        self.load(name)
        return len(text)

    def _file(self, name):
        if not re.fullmatch(r"\w[\w .-]*", name):
            raise Trouble(f"{name!r} is not a valid name for a note: letters, digits, spaces and _ . - are allowed.")
        return os.path.join(self.folder, name + ".md")

    def _forget(self, name):
        for word in _words(name + "\n" + self.texts.pop(name, "")):
            self.words.get(word, set()).discard(name)


def _words(text):
    return set(re.findall(r"\w+", text.lower()))


def _line(text, wanted):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return max(lines, key=lambda line: len(wanted & _words(line)), default="")
