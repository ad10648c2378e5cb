# SPDX-License-Identifier: Apache-2.0
"""Nodes of op packages: each becomes its op, with its attributes as parameters."""

from __future__ import annotations

from hexforge.errors import ModelError
from hexforge.frontends.onnx.translate.builder import Builder, Translator
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ops.packages import custom_op


def package_translator(unit: Unit) -> Translator | None:
    """What writes a unit whose op a registered package defines, or None."""
    return _write if custom_op(unit.target.domain, unit.target.op_type) is not None else None


def _write(b: Builder, u: Unit) -> None:
    custom = custom_op(u.target.domain, u.target.op_type)
    assert custom is not None
    params = {name: attribute.value for name, attribute in u.target.attributes.items()}
    try:
        completed = custom.op.complete(params)
        inputs = [b.optional(u, index) for index in range(len(u.inputs))]
        b.emit_many(custom.op.name, inputs, [b.output(u, index) for index in range(len(u.outputs))], **completed)
    except ModelError as error:
        raise Refusal(f"op package {custom.package!r}: {error}") from None
