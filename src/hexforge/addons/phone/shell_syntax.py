# SPDX-License-Identifier: Apache-2.0
"""The syntax of the phone's shell: text becomes lists of commands; nothing is run and nothing is expanded here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_OPERATORS = ("&&", "||", "&>", ";", "&", "|", "(", ")", "\n")
_REDIRECT = re.compile(r"(\d?)(>>|>&|>|<)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ENDS = " \t\n;&|()<>"
_MOST_DEPTH = 40
_RESERVED = ("then", "else", "elif", "fi", "do", "done", "}", "in")


class ShellSyntaxError(Exception):
    """Text that is no command of the phone's shell."""


@dataclass(frozen=True, slots=True)
class Text:
    """Characters of a word; quoted ones are no pattern and are not split."""

    text: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name` or `${name}`, with what stands for it where it is not set."""

    name: str
    quoted: bool
    default: str = ""


@dataclass(frozen=True, slots=True)
class Substitution:
    """`$(commands)`: what they print."""

    script: Script
    quoted: bool


Piece = Text | Variable | Substitution
Word = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Redirect:
    """Where a stream of a command goes: 0, 1 or 2 to a file, or to another stream."""

    stream: int
    kind: Literal[">", ">>", "<", ">&"]
    target: Word


@dataclass(frozen=True, slots=True)
class Simple:
    """A command: variables set for it, its words, its redirects."""

    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class BracketedCommands:
    """Commands in brackets; those in round ones change nothing outside."""

    script: Script
    own_state: bool
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """`if`: conditions each with what is done where it holds, and what is done where none does."""

    branches: tuple[tuple[Script, Script], ...]
    otherwise: Script | None


@dataclass(frozen=True, slots=True)
class Loop:
    """`for name in words`."""

    name: str
    words: tuple[Word, ...]
    body: Script


ShellCommand = Simple | BracketedCommands | Choice | Loop


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands, each reading what the one before wrote."""

    commands: tuple[ShellCommand, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """A pipeline, and the operator before it: `;`, `&&` or `||`."""

    operator: str
    pipeline: Pipeline


Script = tuple[PipelineStep, ...]


def parse(text: str) -> Script:
    """The commands of a text; ShellSyntaxError where it is none."""
    reader = _Reader(text.replace("\r\n", "\n"))
    script = reader.script(())
    if not reader.at_end:
        raise ShellSyntaxError(f"syntax error: unexpected '{reader.peek()}'")
    return script


class _Reader:
    """Reads a text from its beginning to its end."""

    def __init__(self, text: str, depth: int = 0) -> None:
        if depth > _MOST_DEPTH:
            raise ShellSyntaxError("syntax error: nested too deeply")
        self._text, self._at, self._depth = text, 0, depth

    @property
    def at_end(self) -> bool:
        """Whether nothing is left."""
        self._skip()
        return self._at >= len(self._text)

    def peek(self) -> str:
        """The operator that comes next, or the plain word, for messages and reserved words."""
        self._skip()
        for operator in _OPERATORS:
            if self._text.startswith(operator, self._at):
                return operator
        end = self._at
        while end < len(self._text) and self._text[end] not in _ENDS:
            end += 1
        return self._text[self._at : end] or self._text[self._at : self._at + 1]

    def script(self, ends: tuple[str, ...]) -> Script:
        """Commands until one of the words in `ends`, which is left."""
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise ShellSyntaxError("syntax error: nested too deeply")
        steps: list[PipelineStep] = []
        operator = ";"
        while True:
            while not self.at_end and self.peek() in (";", "\n", "&"):
                if operator in ("&&", "||") and self.peek() != "\n":
                    raise ShellSyntaxError(f"syntax error: unexpected '{self.peek()}'")
                self._at += 1
            if self.at_end or self.peek() in ends:
                break
            steps.append(PipelineStep(operator, self._pipeline()))
            operator = ";"
            if self.at_end or self.peek() in ends:
                break
            following = self.peek()
            if following in ("&&", "||"):
                self._at += 2
                operator = following
            elif following not in (";", "&", "\n"):
                raise ShellSyntaxError(f"syntax error: unexpected '{following}'")
        if operator in ("&&", "||"):
            raise ShellSyntaxError(f"syntax error: nothing after '{operator}'")
        self._depth -= 1
        return tuple(steps)

    def _skip(self) -> None:
        while self._at < len(self._text):
            if self._text[self._at] in " \t":
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif self._text[self._at] == "#" and (self._at == 0 or self._text[self._at - 1] in " \t\n;&|("):
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            else:
                return

    def _pipeline(self) -> Pipeline:
        negated = self.peek() == "!"
        if negated:
            self._at += 1
        commands = [self._command()]
        while not self.at_end and self.peek() == "|":
            self._at += 1
            while not self.at_end and self.peek() == "\n":
                self._at += 1
            commands.append(self._command())
        return Pipeline(tuple(commands), negated)

    def _expect(self, word: str) -> None:
        while not self.at_end and word not in ("(", ")") and self.peek() in (";", "\n"):
            self._at += 1
        if self.at_end or self.peek() != word:
            raise ShellSyntaxError(f"syntax error: expected '{word}', found '{self.peek() if not self.at_end else ''}'")
        self._at += len(word)

    def _command(self) -> ShellCommand:
        if self.at_end:
            raise ShellSyntaxError("syntax error: unexpected end")
        word = self.peek()
        if word in ("(", "{"):
            self._at += 1
            closing = ")" if word == "(" else "}"
            script = self.script((closing,))
            self._expect(closing)
            return BracketedCommands(script, word == "(", self._redirects())
        if word == "if":
            return self._choice()
        if word == "for":
            return self._loop()
        if word in ("while", "until", "case", "function"):
            raise ShellSyntaxError(f"syntax error: this phone's shell has no '{word}'")
        if word in _RESERVED or word in _OPERATORS:
            raise ShellSyntaxError(f"syntax error: unexpected '{word}'")
        return self._simple()

    def _choice(self) -> Choice:
        branches: list[tuple[Script, Script]] = []
        otherwise: Script | None = None
        self._at += len("if")
        while True:
            condition = self.script(("then",))
            self._expect("then")
            branches.append((condition, self.script(("elif", "else", "fi"))))
            word = self.peek()
            if word == "elif":
                self._at += len(word)
                continue
            if word == "else":
                self._at += len(word)
                otherwise = self.script(("fi",))
            self._expect("fi")
            return Choice(tuple(branches), otherwise)

    def _loop(self) -> Loop:
        self._at += len("for")
        name = self.peek()
        if not _NAME.fullmatch(name):
            raise ShellSyntaxError(f"syntax error: '{name}' is no name")
        self._skip()
        self._at += len(name)
        self._expect("in")
        words: list[Word] = []
        while not self.at_end and self.peek() not in (";", "\n"):
            words.append(self._word())
        self._expect("do")
        body = self.script(("done",))
        self._expect("done")
        return Loop(name, tuple(words), body)

    def _redirects(self) -> tuple[Redirect, ...]:
        redirects: list[Redirect] = []
        while not self.at_end and (self._text.startswith("&>", self._at) or _REDIRECT.match(self._text, self._at)):
            redirects.extend(self._redirect())
        return tuple(redirects)

    def _redirect(self) -> list[Redirect]:
        if self._text.startswith("&>", self._at):
            self._at += 2
            return [Redirect(1, ">", self._word()), Redirect(2, ">&", (Text("1", True),))]
        match = _REDIRECT.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        kind = match.group(2)
        stream = int(match.group(1) or (0 if kind == "<" else 1))
        if stream > 2:
            raise ShellSyntaxError(f"syntax error: there is no stream {stream}")
        return [Redirect(stream, kind, self._word())]  # type: ignore[arg-type]

    def _simple(self) -> Simple:
        assignments: list[tuple[str, Word]] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        while not self.at_end:
            if self._text.startswith("&>", self._at) or _REDIRECT.match(self._text, self._at):
                redirects.extend(self._redirect())
                continue
            if self.peek() in _OPERATORS:
                break
            named = _NAME.match(self._text, self._at)
            if not words and named and self._text.startswith("=", named.end()):
                self._at = named.end() + 1
                blank = self._at >= len(self._text) or self._text[self._at] in _ENDS
                assignments.append((named.group(), () if blank else self._word()))
                continue
            words.append(self._word())
        return Simple(tuple(assignments), tuple(words), tuple(redirects))

    # -- words ---------------------------------------------------------------------------------------------------------

    def _word(self) -> Word:
        self._skip()
        pieces: list[Piece] = []
        while self._at < len(self._text) and self._text[self._at] not in _ENDS:
            char = self._text[self._at]
            if char == "'":
                end = self._text.find("'", self._at + 1)
                if end < 0:
                    raise ShellSyntaxError("no closing quote")
                pieces.append(Text(self._text[self._at + 1 : end], True))
                self._at = end + 1
            elif char == '"':
                pieces.extend(self._quoted())
            elif char == "\\":
                following = self._text[self._at + 1 : self._at + 2]
                if following != "\n":
                    pieces.append(Text(following, True))
                self._at += 2
            elif char in "$`":
                pieces.append(self._dollar(quoted=False))
            else:
                pieces.append(Text(char, False))
                self._at += 1
        if not pieces:
            raise ShellSyntaxError(f"syntax error: unexpected '{self._text[self._at : self._at + 1] or 'end'}'")
        return tuple(pieces)

    def _quoted(self) -> list[Piece]:
        self._at += 1
        pieces: list[Piece] = [Text("", True)]
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._at += 1
                return pieces
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in ("$", "`", '"', "\\", "\n"):
                following = self._text[self._at + 1]
                if following != "\n":
                    pieces.append(Text(following, True))
                self._at += 2
            elif char in "$`":
                pieces.append(self._dollar(quoted=True))
            else:
                pieces.append(Text(char, True))
                self._at += 1
        raise ShellSyntaxError("no closing quote")

    def _dollar(self, *, quoted: bool) -> Piece:
        """What begins with `$`, or with a backquote."""
        if self._text[self._at] == "`":
            end = self._text.find("`", self._at + 1)
            if end < 0:
                raise ShellSyntaxError("no closing quote")
            inner = self._text[self._at + 1 : end]
            self._at = end + 1
            return self._substitution(inner, quoted)
        following = self._text[self._at + 1 : self._at + 2]
        if following == "(":
            reader = _Reader(self._text[self._at + 2 :], self._depth + 1)
            script = reader.script((")",))
            reader._expect(")")
            self._at += 2 + reader._at
            return Substitution(script, quoted)
        if following == "{":
            end = self._text.find("}", self._at)
            name, _, default = self._text[self._at + 2 : max(end, 0)].partition(":-")
            if end < 0 or not re.fullmatch(r"[A-Za-z_]\w*|[?#@$0-9]", name):
                raise ShellSyntaxError(f"{self._text[self._at : self._at + 20]}: bad substitution")
            self._at = end + 1
            return Variable(name, quoted, default)
        named = _NAME.match(self._text, self._at + 1)
        if named:
            self._at = named.end()
            return Variable(named.group(), quoted)
        if following and following in "?#@$0123456789":
            self._at += 2
            return Variable(following, quoted)
        self._at += 1
        return Text("$", quoted)

    def _substitution(self, text: str, quoted: bool) -> Substitution:
        reader = _Reader(text, self._depth + 1)
        script = reader.script(())
        if not reader.at_end:
            raise ShellSyntaxError(f"syntax error: unexpected '{reader.peek()}'")
        return Substitution(script, quoted)
