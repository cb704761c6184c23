"""Text to tokens and back, from a Hugging Face `tokenizer.json`, without importing transformers."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from lab.errors import LabError


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-ins of byte-level BPE (GPT-2): visible bytes are themselves, the rest follow 256."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = (b for b in range(256) if b not in visible)
    return {chr(b): b for b in visible} | {chr(256 + n): b for n, b in enumerate(hidden)}


_BYTES = _byte_alphabet()


class Tokenizer:
    """A tokenizer of the Hugging Face layout."""

    def __init__(self, directory: Path | str) -> None:
        directory = Path(directory)
        file = directory / "tokenizer.json"
        if not file.exists():
            raise LabError(f"{directory} has no tokenizer.json; a model needs its tokenizer beside it.")
        try:
            self.inner = tokenizers.Tokenizer.from_file(str(file))
            config = directory / "tokenizer_config.json"
            self.settings: dict[str, Any] = json.loads(config.read_text()) if config.exists() else {}
            if not isinstance(self.settings, dict):
                raise ValueError("tokenizer_config.json is not an object")
        except Exception as e:  # the library raises bare Exception for malformed files
            raise LabError(f"The tokenizer in {directory} is not readable: {e}") from None
        template = directory / "chat_template.jinja"
        if template.exists():
            self.settings["chat_template"] = template.read_text()

    def _special(self, key: str) -> int | None:
        value = self.settings.get(key)
        text = value.get("content") if isinstance(value, dict) else value
        return self.inner.token_to_id(text) if isinstance(text, str) else None

    @cached_property
    def bos(self) -> int | None:
        return self._special("bos_token")

    @cached_property
    def eos(self) -> int | None:
        return self._special("eos_token")

    @property
    def vocab_size(self) -> int:
        return self.inner.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Token ids, with the special tokens this tokenizer puts around a text (none for SmolLM2 and pocket)."""
        try:
            return self.inner.encode(text).ids
        except TypeError:
            raise LabError("The text holds half a character (a lone surrogate), which no tokenizer reads; remove it.") from None
        except Exception as e:  # the library's own bare Exception
            if "UNK" not in str(e):
                raise
            vocab = self.inner.get_vocab()
            some = ", ".join(sorted(vocab, key=vocab.__getitem__)[:8])
            raise LabError(f"The text holds a word this model does not know; it reads words like {some}, set apart by spaces.") from None

    def decode(self, ids: list[int]) -> str:
        return self.inner.decode(ids, skip_special_tokens=False)

    @cached_property
    def _byte_level(self) -> bool:
        return "ByteLevel" in json.dumps(json.loads(self.inner.to_str()).get("decoder"))

    def token_bytes(self, token: int) -> bytes:
        """The bytes one token stands for; a character may need several tokens to be whole."""
        piece = self.inner.id_to_token(token)
        if piece is None:
            return b""
        if self._byte_level and all(c in _BYTES for c in piece):
            return bytes(_BYTES[c] for c in piece)
        return piece.replace("▁", " ").encode()

    def pieces(self, ids: list[int]) -> list[str]:
        """One readable string a token; bytes that are no whole character are shown as \\xNN."""
        return [self.token_bytes(i).decode("utf-8", errors="backslashreplace") for i in ids]

    def single(self, text: str) -> int:
        """The one token that `text` is; raises LabError naming the pieces when it is several."""
        ids = self.inner.encode(text, add_special_tokens=False).ids
        if not ids:
            raise LabError("The answer is empty; give one token, for instance ' Paris'.")
        if len(ids) > 1:
            parts = " + ".join(repr(p) for p in self.pieces(ids))
            raise LabError(f"{text!r} is {len(ids)} tokens here ({parts}); choose an answer that is one token.")
        return ids[0]

    def chat(self, messages: list[dict[str, str]]) -> str:
        """The conversation as this model was taught to read it, ending where the assistant begins."""
        template = self.settings.get("chat_template")
        if not isinstance(template, str):  # older checkpoints may list several
            raise LabError("This model has no chat template; give it a plain prompt.")
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment  # templates come with foreign checkpoints

        def raise_exception(why: str) -> None:  # what Hugging Face's templates call to refuse a conversation
            raise TemplateError(why)

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        special = {k: self.settings.get(k) for k in ("bos_token", "eos_token")}
        try:
            return environment.from_string(template).render(messages=messages, add_generation_prompt=True, **special)
        except (TemplateError, TypeError, ValueError, ArithmeticError) as e:  # the template's own, it is foreign code
            raise LabError(f"This model's chat template refuses the conversation: {e}.") from None

    def save(self, directory: Path) -> None:
        """Write this tokenizer beside a checkpoint."""
        (directory / "tokenizer.json").write_text(self.inner.to_str())
        (directory / "tokenizer_config.json").write_text(json.dumps(self.settings, indent=2))
