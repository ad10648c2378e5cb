# SPDX-License-Identifier: Apache-2.0
"""`python -m tools.qnn_headers` writes the headers in hexforge/include/QNN from the tables of hexforge.qnn_api."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hexforge.addons.capi.library import include_path
from hexforge.qnn_api.enumerations import Enumerator, enumerators
from hexforge.qnn_api.error_codes import error_codes
from hexforge.qnn_api.structures import Declaration, Function, StructureMember, declarations, functions
from hexforge.qnn_api.tables import rows_of
from tools import op_header

_ERROR_TYPES = {
    "HTP/QnnHtpPerfInfrastructure.h": "QNN_HTP_PERF_INFRASTRUCTURE", "QnnBackend.h": "QNN_BACKEND",
    "QnnCommon.h": "QNN_COMMON", "QnnContext.h": "QNN_CONTEXT", "QnnDevice.h": "QNN_DEVICE", "QnnError.h": "QNN",
    "QnnGraph.h": "QNN_GRAPH", "QnnLog.h": "QNN_LOG", "QnnMem.h": "QNN_MEM", "QnnOpPackage.h": "QNN_OP_PACKAGE",
    "QnnProfile.h": "QNN_PROFILE", "QnnSignal.h": "QNN_SIGNAL", "QnnTensor.h": "QNN_TENSOR",
    "System/QnnSystemCommon.h": "QNN_SYSTEM_COMMON", "System/QnnSystemContext.h": "QNN_SYSTEM_CONTEXT",
}  # fmt: skip
"""The headers that have the codes of a component, and what those begin with; the codes are error_codes.csv's."""
_ONLY_HERE = {"QNN": ("QNN_ERROR_INVALID_ARGUMENT", "QNN_ERROR_INVALID_ERROR_HANDLE")}
_EXPORT = """
#ifndef QNN_API
#if defined(__GNUC__)
#define QNN_API __attribute__((visibility("default")))
#else
#define QNN_API
#endif
#endif
"""
_WIDTH = 120


class Headers:
    """The headers as texts, from the tables."""

    def __init__(self) -> None:
        self._types = {each.name: each for each in declarations()}
        self._enumerations: dict[str, list[Enumerator]] = {}
        for row in enumerators():
            self._enumerations.setdefault(row.type, []).append(row)

    def texts(self) -> Mapping[str, str]:
        """Every header by its path under the folder of headers."""
        return {
            row["header"]: self._header(row["header"], row["includes"], row["about"]) for row in rows_of("headers.csv")
        }

    def _header(self, header: str, includes: str, about: str) -> str:
        guard = Path(header).name.upper().replace(".", "_")
        parts = [
            f"// SPDX-License-Identifier: Apache-2.0\n// {about}\n"
            "// Written by tools/qnn_headers.py from public facts; docs/c_api.md has the source of every layout.\n"
            f"#ifndef {guard}\n#define {guard}\n"
        ]
        named = [f"#include {each}" if each.startswith("<") else f'#include "{each}"' for each in includes.split()]
        if named:
            parts.append("\n".join(named) + "\n")
        parts.append('#ifdef __cplusplus\nextern "C" {\n#endif\n')
        parts += [text.strip("\n") + "\n" for text in self._body(header) if text.strip("\n")]
        parts.append("#ifdef __cplusplus\n}\n#endif\n\n#endif\n")
        return "\n".join(parts)

    def _body(self, header: str) -> Iterator[str]:
        own = [each for each in declarations() if each.header == header]
        constants = [row for row in self._enumerations.get("", ()) if row.header == header]
        if header == "QnnCommon.h":
            yield _EXPORT
        if constants:
            yield "\n".join(f"#define {row.name} {row.text}" for row in constants)
        yield "\n".join(f"#define {each.name} {each.macro}" for each in own if each.of == "#define")
        yield self._errors(header)
        aliases = [each for each in own if self._is_number(each)]
        for each in aliases:
            yield self._declared(each)
        for type in dict.fromkeys(row.type for row in enumerators() if row.header == header):
            yield self._enumeration(type, header)
        for each in own:
            if each.of != "#define" and each not in aliases:
                yield self._declared(each)
        yield from self._functions(header)

    @staticmethod
    def _is_number(declaration: Declaration) -> bool:
        return declaration.of in ("uint32_t", "uint64_t")

    def _errors(self, header: str) -> str:
        prefix = _ERROR_TYPES.get(header)
        if prefix is None:
            return ""
        names = _ONLY_HERE.get(prefix) or [
            each.name for each in error_codes() if each.name.startswith(f"{prefix}_ERROR_")
        ]
        numbers = {each.name: each.number for each in error_codes()}
        lines = [f"  {prefix}_NO_ERROR = QNN_SUCCESS,"] if prefix not in ("QNN_COMMON", "QNN") else []
        first = min((numbers[name] for name in names if numbers[name] >= 2000), default=1000) // 1000 * 1000
        if prefix != "QNN":
            lines += [f"  {prefix}_MIN_ERROR = {first},", f"  {prefix}_MAX_ERROR = {first + 999},"]
        lines += [
            f"  {name} = {numbers[name]},"
            for name in sorted(names, key=lambda name: (numbers[name] < 2000, numbers[name]))
        ]
        name = Path(header).stem.removesuffix("Common") if "Common" in header and "/" in header else Path(header).stem
        lines.append(f"  {prefix}_ERROR_UNDEFINED = 0x7FFFFFFF")
        return "// How a call of this component ends.\ntypedef enum {\n" + "\n".join(lines) + f"\n}} {name}_Error_t;"

    def _enumeration(self, type: str, header: str) -> str:
        rows = [row for row in self._enumerations[type] if row.header == header]
        if not type:
            return ""
        if type in self._types:
            return "\n".join(f"#define {row.name} (({type}){row.text})" for row in rows)
        return "typedef enum {\n" + ",\n".join(f"  {row.name} = {row.text}" for row in rows) + f"\n}} {type};"

    def _declared(self, each: Declaration) -> str:
        about = _comment(each.about)
        if each.of == "opaque":
            return f"{about}typedef struct {each.name.removesuffix('_t')} {each.name};"
        if each.is_structure:
            tag = each.of if each.of.startswith("struct") else "struct"
            macro = f"\n{_macro(each.macro, self._empty(each))}" if each.macro else ""
            return f"{about}typedef {tag} {{\n{''.join(_members(each.members))}}} {each.name};{macro}"
        result, _, arguments = each.of.partition(" (")
        if arguments:
            return about + _wrapped(f"typedef {result} (*{each.name})({arguments};")
        return f"{about}typedef {each.of} {each.name};"

    def _empty(self, each: Declaration) -> str:
        """The initialiser of an empty structure: of a union, its first member."""
        values, in_union = [], False
        for member in each.members:
            if not (member.when and in_union):
                value = member.initial or self._zero(member.of)
                values.append(f"{{{value}}}" if member.when else value)
            in_union = bool(member.when)
        return f"{{{', '.join(values)}}}"

    def _zero(self, type: str) -> str:
        declared = self._types.get(type)
        if type.endswith("*") or (declared and (declared.of.endswith("*") or " (" in declared.of)):
            return "NULL"
        if declared and declared.is_structure:
            return declared.macro or self._empty(declared)
        if declared and not self._is_number(declared):
            return self._zero(declared.of)
        if type in self._enumerations and declared is None:
            return self._enumerations[type][-1].name
        return {"float": "0.0f", "double": "0.0", "bool": "false"}.get(type, "0")

    @staticmethod
    def _functions(header: str) -> Iterator[str]:
        own = [each for each in functions() if each.header == header]
        for each in own:
            yield _comment(each.about) + _wrapped(f"QNN_API Qnn_ErrorHandle_t {each.name}({each.arguments});")
        if own:
            yield "\n".join(_pointer(each) for each in own if each.table)


def _pointer(function: Function) -> str:
    return _wrapped(f"typedef Qnn_ErrorHandle_t (*{function.type})({function.arguments});")


def _members(members: Sequence[StructureMember]) -> Iterator[str]:
    in_union = False
    for member in members:
        if bool(member.when) != in_union:
            yield "  };\n" if in_union else "  union {\n"
            in_union = not in_union
        about = f"  // {member.about}" if member.about else ""
        yield f"{'    ' if in_union else '  '}{member.of} {member.name};{about}\n"
    if in_union:
        yield "  };\n"


def _comment(text: str) -> str:
    return "".join(f"// {line}\n" for line in textwrap.wrap(text, _WIDTH - 3))


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, _WIDTH, subsequent_indent="    ", break_long_words=False))


def _macro(name: str, value: str) -> str:
    lines = textwrap.wrap(f"#define {name} {value}", _WIDTH - 2, subsequent_indent="  ", break_long_words=False)
    return " \\\n".join(lines)


def main() -> None:
    """Writes every header that differs, QnnOpDef.h too."""
    texts = {**Headers().texts(), op_header.HEADER.name: op_header.header()}
    for name, text in texts.items():
        path = include_path() / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="ascii") != text:
            path.write_text(text, encoding="ascii")
            print(f"wrote {name}")


if __name__ == "__main__":
    main()
