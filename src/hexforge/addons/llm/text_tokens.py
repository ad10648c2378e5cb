# SPDX-License-Identifier: Apache-2.0
"""Texts as tokens and back, with the `tokenizers` package; chats by the model's own template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexforge.errors import CallError, FormatError, HexforgeError
from hexforge.formats.json_text import read_json, read_utf8

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER, SETTINGS, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
MOST_BYTES = 64 << 20
INSTALL = "pip install 'hexforge[llm]'"
Message = Mapping[str, str]
"""`role` and `content`."""


class TextTokens:
    """A model's tokenizer."""

    end_tokens: frozenset[int] = frozenset()
    """Those that end a text, where the tokenizer says so."""

    def __init__(self, tokenizer: Tokenizer, settings: Any = None, template: str | None = None) -> None:
        self.tokenizer = tokenizer
        self._settings: Mapping[str, Any] = settings if isinstance(settings, Mapping) else {}
        self._template = template or self._settings.get("chat_template")

    @classmethod
    def of_folder(cls, folder: Path, vocabulary: int) -> TextTokens:
        """The tokenizer.json of a model with so many tokens, with the settings and the template of its folder."""
        path = folder / TOKENIZER
        if not path.is_file():
            raise CallError(f"{path}: is missing; put the tokenizer of the model there, and export again")
        if path.stat().st_size > MOST_BYTES:
            raise FormatError(f"{path}: has {path.stat().st_size:,} bytes; a tokenizer has at most {MOST_BYTES:,}")
        tokenizer = _read(path)
        count = tokenizer.get_vocab_size(with_added_tokens=True)
        if count > vocabulary:
            raise FormatError(f"{path}: has {count} tokens, and the model knows {vocabulary}; it is another model's")
        settings = read_json(folder / SETTINGS) if (folder / SETTINGS).is_file() else {}
        template = read_utf8(folder / TEMPLATE) if (folder / TEMPLATE).is_file() else None
        return cls(tokenizer, settings, template)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text; `special`: with those that the tokenizer puts around a text."""
        with _tokenizing():
            return list(self.tokenizer.encode(_valid(text), add_special_tokens=special).ids)

    def number(self, word: str) -> int | None:
        """The token of exactly this text, where there is one."""
        number: int | None = self.tokenizer.token_to_id(word)
        return number

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        with _tokenizing():
            return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def stream(self) -> TextStream:
        """Text that comes token by token."""
        return TextStream(self)

    def chat(self, messages: Sequence[Message], words: Mapping[str, Any] | None = None) -> str:
        """A conversation as the text that the model was trained to continue; `words` are for its template."""
        for message in messages:
            if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
                raise CallError("a message is an object with role and content, both texts")
            if message.get("role") not in ("system", "developer", "user", "assistant", "tool"):
                raise CallError(f"a message's role is system, user or assistant, not {message.get('role')!r}")
        template = self._template
        if isinstance(template, list):  # several by name
            template = next((t.get("template") for t in template if isinstance(t, Mapping)), None)
        if not isinstance(template, str):
            return "".join(f"{message['content']}\n\n" for message in messages)
        return self._filled(template, messages, words or {})

    def _filled(self, template: str, messages: Sequence[Message], given: Mapping[str, Any]) -> str:
        try:
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            raise CallError(f"a chat template needs the jinja2 package: {INSTALL}") from None

        def refuse(reason: str) -> None:
            raise CallError(f"the model's chat template says: {reason}")

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = refuse
        words = {name: self._word(name) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
        try:
            made = environment.from_string(template)
            return str(made.render({**given, **words, "messages": list(messages), "add_generation_prompt": True}))
        except HexforgeError:
            raise
        except Exception as error:  # a template is a program, which can fail in every way
            raise FormatError(f"the model's chat template fails: {error}") from None

    def _word(self, name: str) -> str:
        value = self._settings.get(name)
        value = value.get("content") if isinstance(value, Mapping) else value
        return value if isinstance(value, str) else ""


class TextStream:
    """Gives the text of each token as soon as it is whole: a letter may be several tokens."""

    def __init__(self, tokens: TextTokens) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer, self._stream = tokens.tokenizer, DecodeStream(skip_special_tokens=True)

    def text(self, token: int) -> str:
        """What one more token adds; nothing while a letter is not whole."""
        with _tokenizing():
            return self._stream.step(self._tokenizer, token) or ""


def _valid(text: str) -> str:
    """A text whose bytes that are no letters are replaced; they come from command lines and from JSON."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@contextmanager
def _tokenizing() -> Iterator[None]:
    """FormatError where the tokenizers package fails on a text: it raises plain Exception, or what is not even that."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise FormatError(f"the model's {TOKENIZER} fails on a text: {error}") from None
        raise


def _read(path: Path) -> Tokenizer:
    require_tokenizers(path)
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises plain Exception
        raise FormatError(f"{path}: is no tokenizer: {error}") from None


def require_tokenizers(path: Path) -> None:
    """CallError where the package that reads a file is not installed."""
    if find_spec("tokenizers") is None:
        raise CallError(f"{path}: needs the tokenizers package: {INSTALL}")
