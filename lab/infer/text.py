"""Tokens to text while they arrive: a character is given out once all its bytes are there."""

from collections.abc import Sequence
from typing import Protocol

UNFINISHED = "\ufffd"


class Decodes(Protocol):
    """The part of a tokenizer that streaming needs."""

    def decode(self, ids: list[int], /) -> str: ...


class TextStream:
    """Text of a growing list of tokens, in pieces whose sum is the text of the whole.

    A token of a byte-level vocabulary may hold part of a character, and how a token reads may depend on the one
    before it (SentencePiece drops a leading space). So the text is taken as a difference: the tokens since the last
    clean border, with the previous group in front, against that group alone. A stop string is never given out, not
    even its beginning: what could become one is held back until it cannot.
    """

    def __init__(self, tokenizer: Decodes, before: Sequence[int] = (), stops: Sequence[str] = ()) -> None:
        self.tokenizer = tokenizer
        self.ids = list(before)[-8:]  # enough for the longest character and what its reading depends on
        self.start = 0
        self.border = len(self.ids)
        self.stops = [stop for stop in stops if stop]
        self.held = ""
        self.stopped: str | None = None

    def push(self, token: int) -> str:
        """Add a token; the text that is now certain, often empty inside a character of several tokens."""
        self.ids.append(token)
        grown = self.tokenizer.decode(self.ids[self.start :])
        known = self.tokenizer.decode(self.ids[self.start : self.border])
        if grown.endswith(UNFINISHED) or len(grown) < len(known):
            return ""
        self.start, self.border = self.border, len(self.ids)
        return self._release(grown[len(known) :])

    def flush(self) -> str:
        """Whatever is left when generation ends: held-back text and a character that was never finished."""
        grown = self.tokenizer.decode(self.ids[self.start :])
        known = self.tokenizer.decode(self.ids[self.start : self.border])
        self.start, self.border = self.border, len(self.ids)
        text = self._release(grown[len(known) :])
        if self.stopped is None:
            text, self.held = text + self.held, ""
        return text

    def _release(self, text: str) -> str:
        if self.stopped is not None:
            return ""
        self.held += text
        found = [(at, stop) for stop in self.stops if (at := self.held.find(stop)) >= 0]
        if found:
            at, self.stopped = min(found)
            text, self.held = self.held[:at], ""
            return text
        keep = max((_overlap(self.held, stop) for stop in self.stops), default=0)
        cut = len(self.held) - keep
        text, self.held = self.held[:cut], self.held[cut:]
        return text


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of the text that begins the stop string."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
