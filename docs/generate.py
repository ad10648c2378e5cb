# SPDX-License-Identifier: Apache-2.0
"""Write docs/api.md out of the docstrings of what `import hexforge` offers, docs/options.md out of the tables of
options, docs/gpu_ops.md out of what the gpu backend takes, docs/modules.md out of the modules' first lines,
docs/htp_features.md out of the tests' markers, and sections of docs/c_api.md and docs/device.md:
`python -m docs.generate` (make docs)."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import hexforge
import hexforge.ops
from docs.generated_sections import FOLDER, with_sections
from docs.generated_sections import SECTIONS as PAGE_SECTIONS
from docs.htp_features import FEATURES_PAGE, features_page
from hexforge.addons.gpu.qnn_ops import EXCLUDED, SOURCES
from hexforge.addons.gpu.support import KNOWN
from hexforge.chips.graph_config import GraphConfig
from hexforge.ir.op import known_names
from hexforge.options import Option, OptionTable
from hexforge.ort.options.parsing import OPTION_TABLES
from hexforge.runtime.registry import backend_options, config_class

PAGE, OPTIONS_PAGE = Path(__file__).with_name("api.md"), Path(__file__).with_name("options.md")
GPU_OPS_PAGE = Path(__file__).with_name("gpu_ops.md")
MODULES_PAGE = Path(__file__).with_name("modules.md")
WIDTH = 100
LONGEST_DEFAULT = 40

SECTIONS = (
    ("ort", "Sessions, as onnxruntime has them"),
    ("analysis", "Time and quality of a model"),
    ("cluster", "Many models on many chips"),
    ("runtime", "Contexts: compiled models"),
    ("formats", "Files"),
    ("chips", "Chips"),
    ("options", "Options"),
    ("backend", "Backends"),
    ("timeline", "Timelines"),
    ("errors", "Errors"),
)
"""Room of the house -> heading; names of other rooms come last."""


def page() -> str:
    """The whole page."""
    names = [name for name in hexforge.__all__ if name != "__version__"]
    parts = [
        "# API reference\n",
        "What `import hexforge` offers: the public surface, which keeps a renamed name for a version\n"
        "([CONTRIBUTING](../CONTRIBUTING.md)). Written by `make docs` out of the docstrings; edit those, not\n"
        "this page. All other modules are internal and may change.\n",
    ]
    modules = [name for name in names if inspect.ismodule(getattr(hexforge, name))]
    names = [name for name in names if name not in modules]
    rooms = {name: _room(getattr(hexforge, name)) for name in names}
    known = dict(SECTIONS)
    for room, title in (*SECTIONS, ("", "More")):
        members = [name for name in names if (rooms[name] if rooms[name] in known else "") == room]
        if members:
            parts.append(f"## {title}\n")
            parts += [_entry(name, getattr(hexforge, name)) for name in sorted(members, key=_functions_first)]
    parts.append("## Modules\n")
    parts += [_module(name, getattr(hexforge, name), names) for name in modules]
    return "\n".join(parts)


def options_page() -> str:
    """Every option: what it does, or why it can have no effect here."""
    parts = [
        "# Options\n",
        "Every option that QNNExecutionProvider knows, as `hexforge options` lists them. Written by `make docs` out\n"
        "of the tables; edit those, not this page. `tests/ort/test_every_option.py` looks at a session with and\n"
        "without each: it changes a file, numbers, time, placement, a log or an error, or the session says that\n"
        "it does not.\n",
    ]
    for title, kind in OPTION_TABLES.items():
        acts = [option for option in kind.table() if option.effect is None]
        parts += [f"## {title.capitalize()}\n", "| key | default | does |", "|---|---|---|"]
        parts += [f"| `{o.key}` | {_given(o)} | {_does(o)} |" for o in acts]
        if idle := [option for option in kind.table() if option.effect is not None]:
            parts += ["", "Without an effect here:\n", "| key | asks for | why nothing changes |", "|---|---|---|"]
            parts += [f"| `{o.key}` | {o.doc} | {o.effect} |" for o in idle]
        parts.append("")
    parts += [
        "## Options of the backends, by face\n",
        "Each is declared once, and every face takes its type, bounds and default from there. A key in bold is a\n"
        "provider option, too.\n",
        "| backend | key | GraphConfig | config file | compile spec | command line | default | does |",
        "|---|---|---|---|---|---|---|---|",
    ]
    graphs = {option.key: option for option in GraphConfig.table()}
    for name in backend_options():
        for o in config_class(name).table():
            spelled = {**o.spellings(), **(graphs[o.key].spellings() if o.key in graphs else {})}
            spelled["GraphConfig"] = graphs[o.key].name if o.key in graphs else ""
            words = [spelled.get(face, "") for face in ("GraphConfig", "config file", "compile spec", "command line")]
            cells = [f"`{word}`" if word else "" for word in words]
            key = f"**`{o.key}`**" if o.provider else f"`{o.key}`"
            parts.append(f"| {name} | {key} | {' | '.join(cells)} | {_given(o)} | {o.doc} |")
    return "\n".join([*parts, ""])


def gpu_ops_page() -> str:
    """Every op of the table: whether QNN's GPU has it, by which page, and what the gpu backend does."""
    parts = [
        "# Ops of the gpu backend\n",
        "Written by `make docs` out of `addons/gpu/qnn_ops.py` and `support.py`; edit those, not this page. Sources\n"
        "are Qualcomm's pages on AI Engine Direct (80-63442-10): *supplement* is the GPU Backend Op Definition\n"
        "Supplement of 2.25, *revision history* the GPU Op Support Revision History up to 2.46. What they say of\n"
        "ranks, types and single parameters is not followed. MatMulNBits, GatherBlockQuantized and\n"
        "GroupQueryAttention, which onnxruntime's QNN EP takes on the GPU, become ops of this table.\n",
        "| op | QNN's GPU | gpu backend |",
        "|---|---|---|",
    ]
    for name in sorted(known_names()):
        documented = SOURCES.get(name)
        said = f"yes: {documented}" if documented else f"no: {EXCLUDED.get(name, 'not listed')}"
        if name in KNOWN:
            taken = "taken" if documented else "refused; taken with `gpu_ops=any`"
        else:
            taken = "no kernel yet" if documented else "refused"
        parts.append(f"| {name} | {said} | {taken} |")
    return "\n".join([*parts, ""])


def modules_page() -> str:
    """Every room and module of the package by its first line."""
    source = Path(hexforge.__file__).parent
    parts = [
        "# Modules\n",
        "Every module of `src/hexforge` by the first line of its docstring. Written by `make docs`; edit those\n"
        "lines, not this page. [layout.md](layout.md) shows the house in a minute.\n",
    ]
    for folder in sorted({path.parent for path in source.rglob("*.py")}):
        files = sorted(folder.glob("*.py"), key=lambda path: (path.stem != "__init__", path.stem))
        parts.append(f"## {folder.relative_to(source.parent)}\n")
        if files[0].stem == "__init__":
            parts.append(f"{_first_sentence(files.pop(0))}\n")
        parts += [f"- `{path.stem}`: {_first_sentence(path)}" for path in files]
        parts.append("")
    return "\n".join(parts)


def _first_sentence(module: Path) -> str:
    """The first paragraph of a module's docstring, in one line."""
    written = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return " ".join(written.partition("\n\n")[0].split())


def _given(option: Option) -> str:
    written = "" if option.default is None else option.write(option.default)
    return f"`{written}`" if written else ""


def _does(option: Option) -> str:
    return f"{option.doc} ({option.backend} backend)" if option.backend else option.doc


def _room(thing: Any) -> str:
    return str(getattr(thing, "__module__", "")).removeprefix("hexforge.").removeprefix("addons.").split(".")[0]


def _functions_first(name: str) -> tuple[bool, str]:
    thing = getattr(hexforge, name)
    return not inspect.isroutine(thing), name.lower()


def _module(name: str, module: Any, above: Sequence[str]) -> str:
    """A public module: what it is for, then its names; those that `hexforge` itself offers are only named."""
    first, _, rest = _doc(module).partition("\n\n")
    example = "\n".join(line.removeprefix("    ") for line in rest.split("\n\n`")[0].splitlines())
    parts = [f"### {name}\n", f"`hexforge.{name}`: {' '.join(first.split())}\n"]
    parts += [f"```python\n{example.strip()}\n```\n"] if "import" in example else []
    same = [member for member in module.__all__ if member in above]
    parts += [f"As above: {', '.join(f'[{m}](#{m.lower()})' for m in same)}.\n"] if same else []
    for member in module.__all__:
        if member not in above:
            parts.append("#" + _entry(f"{name}.{member}", getattr(module, member)))
    return "\n".join(parts)


def _entry(name: str, thing: Any) -> str:
    if isinstance(thing, type):
        return _class(name, thing)
    if inspect.isroutine(thing):
        return f"### {name}\n\n```python\n{_signature(name, thing)}\n```\n\n{_doc(thing)}\n"
    return f"### {name}\n\n`{thing!r}`\n"


def _class(name: str, thing: type) -> str:
    lines = [f"### {name}\n"]
    bases = [base.__name__ for base in thing.__bases__ if base is not object]
    if issubclass(thing, BaseException):
        return f"{lines[0]}\n*{', '.join(bases)}.* {_doc(thing)}\n"
    if issubclass(thing, enum.Enum):
        members = ", ".join(f"`{member.name}`" for member in thing)
        return f"{lines[0]}\n{_doc(thing)}\n\nOne of {members}.\n"
    if dataclasses.is_dataclass(thing):
        lines += [f"{_doc(thing)}\n", *_fields(thing)]
    else:
        lines += [f"```python\n{_signature(name, thing)}\n```\n", f"{_doc(thing)}\n"]
    told = list(_members(thing))
    if told:
        lines += [*told, ""]
    return "\n".join(lines)


def _fields(thing: Any) -> Iterator[str]:
    told = {o.name: o.sentence for o in thing.table()} if issubclass(thing, OptionTable) else _attribute_docs(thing)
    rows = [field for field in dataclasses.fields(thing) if not field.name.startswith("_")]
    if not rows:
        return
    said = any(told.get(field.name) for field in rows)
    yield "| field | type | default |" + (" |" if said else "")
    yield "|---|---|---|" + ("---|" if said else "")
    for field in rows:
        kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
        row = f"| `{field.name}` | `{_cell(kind)}` | {_default(field)} |"
        yield row + (f" {_cell(told.get(field.name, ''))} |" if said else "")
    yield ""


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{_cell(_shown(field.default))}`"
    if field.default_factory is not dataclasses.MISSING:
        return f"`{getattr(field.default_factory, '__name__', '…')}()`"
    return ""


def _attribute_docs(thing: type) -> dict[str, str]:
    """Texts that stand below the fields of a class or of its bases, else what the command line says of a field."""
    spelled = [field for field in dataclasses.fields(thing) if "spelling" in field.metadata]
    told = {field.name: field.metadata["spelling"].sentence for field in spelled}
    for part in reversed(thing.__mro__):
        try:
            (definition,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        except (OSError, TypeError, ValueError):
            continue
        for field, text in pairwise(definition.body):  # type: ignore[attr-defined]
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                told[field.target.id] = " ".join(str(text.value.value).split())
    return told


def _members(thing: type) -> Iterator[str]:
    """Public methods and properties of a class that have a docstring, those of its bases in hexforge too."""
    fields = {field.name for field in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else set()
    for name, member in inspect.getmembers_static(thing):
        if name.startswith("_") or name in fields or not _is_ours(thing, name):
            continue
        if isinstance(member, property) and member.fget is not None:
            yield f"- **`{name}`**: {_line(member.fget)}"
        elif isinstance(member, (staticmethod, classmethod)) or inspect.isfunction(member):
            inner = getattr(member, "__func__", member)
            yield f"- **`{_short_signature(name, inner)}`**: {_line(inner)}"


def _is_ours(thing: type, name: str) -> bool:
    return any(name in vars(base) and base.__module__.startswith("hexforge") for base in thing.__mro__)


# -- texts ------------------------------------------------------------------------------------------------------


def _doc(thing: Any) -> str:
    """The docstring; a dataclass without one has only a signature that Python wrote, which says nothing."""
    text = inspect.getdoc(thing) or ""
    return "" if text.startswith(f"{getattr(thing, '__name__', '')}(") else text


def _line(thing: Any) -> str:
    return " ".join(_doc(thing).split("\n\n")[0].split()) or "—"


def _signature(name: str, thing: Any) -> str:
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return f"{name}(…)"
    given = [p for p in found.parameters.values() if p.name not in ("self", "cls")]
    texts: list[str] = []
    starred = False
    for parameter in given:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            texts.append("*")
        starred |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        texts.append(_parameter(parameter))
    back = "" if found.return_annotation is inspect.Signature.empty or isinstance(thing, type) else _returned(found)
    line = f"{name}({', '.join(texts)}){back}"
    return line if len(line) <= WIDTH else f"{name}(\n" + "".join(f"    {text},\n" for text in texts) + f"){back}"


def _returned(found: inspect.Signature) -> str:
    kind = found.return_annotation
    return f" -> {kind if isinstance(kind, str) else getattr(kind, '__name__', kind)}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    kind = parameter.annotation
    typed = "" if kind is parameter.empty else f": {kind if isinstance(kind, str) else getattr(kind, '__name__', kind)}"
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}{typed}"
    return f"{parameter.name}{typed}{' = ' if typed else '='}{_shown(parameter.default)}"


def _short_signature(name: str, thing: Any) -> str:
    given = [p for p in inspect.signature(thing).parameters.values() if p.name not in ("self", "cls")]
    texts = []
    for parameter in given:
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f"={_shown(parameter.default)}"
        texts.append(f"{stars}{parameter.name}{default}")
    return f"{name}({', '.join(texts)})"


def _shown(value: Any) -> str:
    text = str(value) if isinstance(value, enum.Enum) else repr(value)
    if callable(value):
        text = getattr(value, "__name__", "…").replace("<lambda>", "…")
    text = re.sub(r"^<([\w.]+): .*>$", r"\1", text)  # an enum of onnxruntime
    return "…" if len(text) > LONGEST_DEFAULT or " at 0x" in text else text


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    pages = (
        (PAGE, page),
        (OPTIONS_PAGE, options_page),
        (GPU_OPS_PAGE, gpu_ops_page),
        (MODULES_PAGE, modules_page),
        (FEATURES_PAGE, features_page),
    )
    for path, written in pages:
        path.write_text(written(), encoding="utf-8")
        print(f"docs: wrote {path}")
    for name in PAGE_SECTIONS:
        path = FOLDER / name
        path.write_text(with_sections(name, path.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"docs: wrote the sections of {path}")
