# SPDX-License-Identifier: Apache-2.0
"""Placements beside each other, and groups of units that are judged together."""

from __future__ import annotations

from hexforge.addons.vendor.groups import candidate_groups
from hexforge.addons.vendor.placing import compare_placement
from hexforge.addons.vendor.proof import RulePlacement, place_by_the_rules
from hexforge.addons.vendor.session import EP, VendorOptions, VendorPlacement
from hexforge.model.reader import read
from tests.addons.vendor.models import gated, small_chain

CPU = "CPUExecutionProvider"


def placed(bits: int = 8) -> RulePlacement:
    return place_by_the_rules(read(small_chain(bits).SerializeToString()), VendorOptions("SM8650"))


def rows(model: RulePlacement) -> dict[str, list[list[str]]]:
    nodes: dict[str, list[list[str]]] = {EP: [], CPU: []}
    for row in model.parts.rows:
        nodes[row.where].append([row.op_type, row.node])
    return nodes


def test_the_same_placement_is_alike() -> None:
    model = placed()
    compared = compare_placement(model.parts, VendorPlacement(rows(model)))
    assert compared.alike
    assert [op for op, _, _ in compared.left_on_cpu] == ["QuantizeLinear", "DequantizeLinear"]
    assert compared.compared == len(model.parts.rows)


def test_a_node_on_the_other_side_is_named_with_the_reason() -> None:
    model = placed()
    nodes = rows(model)
    conv = next(row for row in nodes[EP] if row[1] == "conv2")
    nodes[EP].remove(conv)
    nodes[CPU].append(conv)
    (other,) = compare_placement(model.parts, VendorPlacement(nodes)).differences
    assert (other.node, other.vendor, other.hexforge) == ("conv2", "CPU", "NPU")
    assert "knows of no reason" in other.reason
    quantize = next(row for row in rows(model)[CPU] if row[0] == "QuantizeLinear")
    (other,) = compare_placement(model.parts, VendorPlacement({EP: [quantize], CPU: []})).differences
    assert "offload_graph_io_quantization" in other.reason


def test_a_conversion_that_onnxruntime_copied_stands_for_the_original() -> None:
    model = placed()
    nodes = rows(model)
    last = next(row for row in nodes[CPU] if row[0] == "DequantizeLinear")
    nodes[CPU].remove(last)
    nodes[EP].append(last)
    assert not compare_placement(model.parts, VendorPlacement(nodes)).alike
    nodes[CPU].append(["DequantizeLinear", "DequantizeLinear_token_20"])
    assert compare_placement(model.parts, VendorPlacement(nodes)).alike
    nodes[CPU].append(["Conv", "new"])
    assert not compare_placement(model.parts, VendorPlacement(nodes)).alike


def test_groups_have_what_is_inside_for_themselves() -> None:
    model = place_by_the_rules(read(gated().SerializeToString()), VendorOptions("SM8650")).placed
    names = [[model.placements[i].unit.target.name for i in group] for group in candidate_groups(model)]
    assert names == [["sigmoid1", "mul1"], ["conv1", "sigmoid1", "mul1"]]  # conv1 alone is read by both others
