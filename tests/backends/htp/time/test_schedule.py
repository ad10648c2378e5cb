# SPDX-License-Identifier: Apache-2.0
"""The HTP's schedule: how models are written out, and what of it the accelerator does as one."""

from __future__ import annotations

import pytest
from onnx import parser

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.analysis.timed_graphs import graph_of
from hexforge.backends.htp.time import tile
from hexforge.backends.htp.time.schedule import DIFFERENCE, schedule
from hexforge.backends.htp.time.tile import Task

W8A8, FLOAT = tile.precision("w8a8"), tile.precision("float")
VTCM = 8 << 20


def tasks(body: str, precision: tile.Precision = W8A8, vtcm: int = VTCM) -> list[Task]:
    """Tasks of a model in onnx's text form."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> agraph {body}')
    return schedule(graph_of(model), precision, "qnn_dlc", vtcm)


def only(body: str, precision: tile.Precision = W8A8) -> Task:
    found = tasks(body, precision)
    assert len(found) == 1, [t.kinds for t in found]
    return found[0]


def constant(name: str, *shape: int) -> str:
    """Nodes that make a weight without data, as topology files have it."""
    sizes = ", ".join(map(str, shape))
    shape_node = f"{name}_s = Constant<value_ints: ints = [{sizes}]>()"
    return f"{shape_node} {name} = ConstantOfShape<value = float[1] {{1}}>({name}_s)"


GATES = {
    "silu": "s = Sigmoid(x) y = Mul(x, s)",
    "reversed": "s = Sigmoid(x) y = Mul(s, x)",
    "quick_gelu": "c = Constant<value_float: float = 1.702>() a = Mul(x, c) s = Sigmoid(a) y = Mul(x, s)",
    "mish": "a = Softplus(x) s = Tanh(a) y = Mul(x, s)",
}


@pytest.mark.parametrize("name", GATES)
def test_a_value_times_its_own_function_costs_no_product(name: str) -> None:
    body = f"(float[1, 64, 256] x) => (float[1, 64, 256] y) {{ {GATES[name]} }}"
    scaled = 64 * 256 / 1e6 if name == "quick_gelu" else 0.0  # its 1.702 is a product by a constant
    assert only(body).hvx.get("add", 0.0) == pytest.approx(scaled)
    assert only(body).hvx["lookup"] == pytest.approx(64 * 256 / 1e6 * (2 if name == "mish" else 1))


def test_a_gate_of_another_value_is_a_product() -> None:
    gated = only("(float[1, 64, 256] x, float[1, 64, 256] z) => (float[1, 64, 256] y) { s = Sigmoid(z) y = Mul(x, s) }")
    assert gated.hvx["add"] == pytest.approx(64 * 256 / 1e6)


def test_gelu_by_erf_and_by_tanh_is_one_lookup() -> None:
    erf = """r = Constant<value_float: float = 1.4142135>() d = Div(x, r) e = Erf(d)
        o = Constant<value_float: float = 1.0>() p = Add(e, o) m = Mul(x, p)
        h = Constant<value_float: float = 0.5>() y = Mul(m, h)"""
    power = "t = Constant<value_float: float = 3.0>() c = Pow(x, t)"
    products = "q = Mul(x, x) c = Mul(q, x)"
    tanh = """k = Constant<value_float: float = 0.044715>() a = Mul(c, k) b = Add(x, a)
        r = Constant<value_float: float = 0.7978846>() d = Mul(b, r) e = Tanh(d)
        o = Constant<value_float: float = 1.0>() p = Add(e, o) h = Constant<value_float: float = 0.5>() g = Mul(x, h)
        y = Mul(g, p)"""
    for body in (erf, power + tanh, products + tanh):
        task = only(f"(float[1, 64, 256] i) => (float[1, 64, 256] y) {{ x = Relu(i) {body} }}")
        assert task.hvx == {"lookup": pytest.approx(64 * 256 / 1e6), "vector_op": 0.5}  # half of 32 KiB


def test_a_layer_norm_written_out_is_one_norm() -> None:
    task = only("""(float[1, 64, 256] x) => (float[1, 64, 256] y) {
        m = ReduceMean<axes = [-1]>(x) c = Sub(x, m) t = Constant<value_float: float = 2.0>() s = Pow(c, t)
        v = ReduceMean<axes = [-1]>(s) e = Constant<value_float: float = 0.00001>() a = Add(v, e) r = Sqrt(a)
        y = Div(c, r) }""")
    assert task.kinds == ["LayerNorm"]
    assert task.hvx["norm"] == pytest.approx(64 * 256 / 1e6)


def test_a_group_norm_written_out_stays_an_image() -> None:
    task = only(f"""(float[1, 64, 16, 16] x) => (float[1, 64, 16, 16] y) {{
        {constant("s", 4)} {constant("b", 4)} {constant("g", 64, 1, 1)} {constant("h", 64, 1, 1)}
        i = Constant<value_ints: ints = [0, 4, -1]>() r = Reshape(x, i) n = InstanceNormalization(r, s, b)
        k = Constant<value_ints: ints = [1, 64, 16, 16]>() q = Reshape(n, k) m = Mul(q, g) y = Add(m, h) }}""")
    assert task.kinds == ["GroupNorm"]
    assert task.hvx["reduce"] == pytest.approx(2 * 16 * 16 * 64 / 1e6)
    assert "norm" not in task.hvx


def test_an_embedding_reads_its_rows_and_not_the_table() -> None:
    found = tasks(f"(int64[1, 128] i) => (float[1, 128, 768] y) {{ {constant('t', 30000, 768)} y = Gather(t, i) }}")
    assert sum(t.weight_bytes for t in found) == 0
    assert found[0].hvx["copy"] == pytest.approx(128 * 768 / 1e6)
    assert sum(t.spill_bytes for t in found) < 128 * 768


def test_a_cut_of_channels_copies_what_it_reads_once_and_is_tiled_with_its_neighbours() -> None:
    cut = tasks("""(float[1, 96, 16, 16] x) => (float[1, 40, 16, 16] y, float[1, 56, 16, 16] z) {
        r = Relu(x) s = Constant<value_ints: ints = [40, 56]>() a, b = Split<axis = 1>(r, s)
        y = MaxPool<kernel_shape = [1, 1]>(a) z = MaxPool<kernel_shape = [1, 1]>(b) }""")[1]
    assert cut.kinds == ["Split"]
    assert cut.hvx["copy"] == pytest.approx(16 * 16 * 96 / 1e6)  # both parts, not the first alone
    assert cut.local


def test_a_norm_of_pixels_is_tiled_with_its_neighbours() -> None:
    body = """(float[1, 512, 512, 64] x) => (float[1, 512, 512, 64] y) {
        SCALE a = Relu(x) n = LayerNormalization<axis = -1>(a, g, b) y = Sigmoid(n) }"""
    scale = f"{constant('g', 64)} {constant('b', 64)}"
    found = tasks(body.replace("SCALE", scale), FLOAT)
    assert all(t.local for t in found if t.kinds[0] == "LayerNorm")
    image = 512 * 512 * 64 * 2
    assert sum(t.spill_bytes for t in found) == image  # it comes from DRAM once, nothing between spills


def test_zeros_around_a_window_are_part_of_it() -> None:
    def net(between: str) -> list[str]:
        found = tasks(f"""(float[1, 32, 16, 16] x) => (float[1, 32, 16, 16] y) {{
            {constant("w", 32, 32, 3, 3)} p = Constant<value_ints: ints = [0, 0, 1, 1, 0, 0, 1, 1]>()
            r = Sigmoid(x) q = Pad(r, p) {between} y = Conv<kernel_shape = [3, 3]>(s, w) }}""")
        return [kind for t in found for kind in t.kinds]

    assert "Pad" not in net("s = Identity(q)")
    assert "Pad" in net("s = Sigmoid(q)")


def test_a_shallow_tensor_lies_flat_when_it_moves() -> None:
    assert (
        tile.flat_elements((2304, 2, 16, 2)) == tile.FLAT * 2304 * 2 * 16 * 2 < tile.padded_elements((2304, 2, 16, 2))
    )
    assert tile.flat_elements((1, 32, 32, 128)) == tile.padded_elements((1, 32, 32, 128))


def test_a_small_op_has_a_part_of_the_fixed_cost() -> None:
    def fixed(width: int) -> float:
        found = tasks(f"(float[1, {width}, 64] x) => (float[1, {width}, 64] y) {{ a = Sigmoid(x) y = Softmax(a) }}")
        return sum(t.hvx.get("vector_op", 0.0) for t in found)

    assert 0 < fixed(8) < fixed(64) < fixed(1024) == fixed(4096)


def test_a_convolution_over_frames_is_padded_like_one_over_an_image() -> None:
    found = tasks(f"""(float[1, 32, 4, 14, 14] x) => (float[1, 40, 4, 14, 14] y) {{
        {constant("w", 40, 32, 3, 3, 3)} y = Conv<kernel_shape = [3, 3, 3], pads = [1, 1, 1, 1, 1, 1]>(x, w) }}""")
    macs = sum(t.hmx.get("conv3d", 0.0) for t in found)
    assert macs == pytest.approx(4 * 16 * 16 * 27 * 32 * 64 / 1e9)


def test_a_resize_to_the_same_size_is_nothing() -> None:
    def resized(size: int) -> list[Task]:
        return tasks(f"""(float[1, 32, 16, 16] x) => (float[1, 32, {size}, {size}] y) {{
            s = Constant<value_ints: ints = [1, 32, {size}, {size}]>() a = Relu(x)
            b = Resize<mode = "linear">(a, , , s) y = Relu(b) }}""")

    assert not any("resize" in t.hvx for t in resized(16))
    assert any("resize" in t.hvx for t in resized(32))


def test_lines_fold_and_axes_behind_the_depth_are_not_padded() -> None:
    assert tile.padded_elements((1, 1, 16384, 256)) == 16384 * 256
    assert tile.padded_elements((1, 2, 16384, 256)) == 8 * 16384 * 256
    assert tile.padded_elements((1, 4096, 1)) == 4096
    assert tile.padded_elements((64, 7, 2, 7, 2)) == 64 * 224
    assert tile.padded_elements((1, 224, 224, 3)) == 224 * 224 * 32


def test_a_linear_layer_counts_its_rows_together() -> None:
    def layer(*shape: int) -> Task:
        sizes = ", ".join(map(str, shape))
        body = f"(float[{sizes}, 64] x) => (float[{sizes}, 32] y) {{ {constant('w', 64, 32)} y = MatMul(x, w) }}"
        return tasks(body)[-1]

    assert layer(16, 49).hmx == layer(1, 784).hmx


def test_attention_above_vtcm_passes_through_dram_and_takes_longer_for_a_byte() -> None:
    body = """(float[1, 8, N, 64] q, float[1, 8, 64, N] k, float[1, 8, N, 64] v) => (float[1, 8, N, 64] y) {
        s = MatMul(q, k) p = Softmax<axis = -1>(s) y = MatMul(p, v) }"""
    small, large = (tasks(body.replace("N", str(n)), FLOAT) for n in (256, 2048))
    assert sum(t.spill_bytes for t in small) <= 3 * 8 * 256 * 64 * 2  # the inputs
    assert sum(t.spill_bytes for t in large) > 4 * 8 * 2048 * 2048 * 2  # scores and their softmax, there and back
    assert not any("large_attention" in t.hvx for t in small)
    assert [t.op for t in large if "large_attention" in t.hvx] == ["Softmax"]
    assert all(t.spilled for t in large)
    heads = tasks(body.replace("N", str(1024)), FLOAT)  # 2 MB of scores a head: they are worked on head by head
    assert sum(t.spill_bytes for t in heads) <= 3 * 8 * 1024 * 64 * 2
    assert not any("large_attention" in t.hvx for t in heads)


def test_mechanisms_count_what_they_ask_for_where_it_is_there() -> None:
    def kinds(body: str, precision: tile.Precision = FLOAT) -> set[str]:
        return {kind for task in tasks(body, precision) for kind in task.hvx}

    rows = "(float[1, 300, W] x) => (float[1, 300, W] y) { a = Neg(x) y = Sigmoid(a) }"
    assert "loose_row" in kinds(rows.replace("W", "4"))
    assert "loose_row" not in kinds(rows.replace("W", "64")) | kinds(rows.replace("W", "4"), W8A8)
    product = "(float[12, N, 64] q, float[12, 64, N] k) => (float[12, N, N] y) { y = MatMul(q, k) }"
    assert "loose_product" in kinds(product.replace("N", "577"))
    assert "loose_product" not in kinds(product.replace("N", "576"))
    image = "(float[1, 64, S, S] x, float[1, 64, S, S] z) => (float[1, 64, S, S] y) { y = Add(x, z) }"
    assert "large_sum" in kinds(image.replace("S", "256"))
    assert "large_sum" not in kinds(image.replace("S", "64"))
    top = """(float[1, 8400] x) => (float[1, 300] y, int64[1, 300] i) {
        k = Constant<value_ints = [300]>() y, i = TopK(x, k) }"""
    assert "sorted" in kinds(top)


def test_a_softmax_along_another_axis_is_moved_there_and_back() -> None:
    body = "(float[1, 64, 96] x) => (float[1, 64, 96] y) { y = Softmax<axis = AXIS>(x) }"
    assert "shuffle" not in tasks(body.replace("AXIS", "-1"))[0].hvx
    assert tasks(body.replace("AXIS", "1"))[0].hvx["shuffle"] == 2 * tasks(body.replace("AXIS", "1"))[0].hvx["softmax"]


def test_a_batch_norm_that_stays_costs_more_at_fixed_point_alone() -> None:
    body = f"""(float[1, 32, 16, 16] x) => (float[1, 32, 16, 16] y) {{
        {" ".join(constant(name, 32) for name in ("s", "b", "m", "v"))} r = Relu(x)
        y = BatchNormalization(r, s, b, m, v) }}"""
    assert any("batchnorm" in t.hvx for t in tasks(body, W8A8))
    assert not any("batchnorm" in t.hvx for t in tasks(body, FLOAT))


def test_pieces_of_rows_are_counted_where_they_are_no_whole_tiles() -> None:
    def pieces(size: int) -> float:
        ends = " ".join(f"{n} = Constant<value_ints: ints = [{v}]>()" for n, v in (("b", 0), ("e", size), ("a", 2)))
        found = tasks(
            f"(float[1, 100, 96] x) => (float[1, 100, {size}] y) {{ {ends} r = Relu(x) y = Slice(r, b, e, a) }}"
        )
        return sum(t.hvx.get("piece", 0.0) for t in found)

    assert pieces(64) == 0
    assert pieces(33) == pytest.approx(0.1)


def test_a_recurrence_waits_for_every_step() -> None:
    def steps(count: int) -> float:
        found = tasks(f"""(float[{count}, 1, 32] x) => (float[{count}, 1, 1, 64] y) {{
            {constant("w", 1, 256, 32)} {constant("r", 1, 256, 64)} y = LSTM<hidden_size = 64>(x, w, r) }}""")
        return sum(t.hvx.get("handover", 0.0) for t in found)

    assert steps(40) - steps(20) == 20


def test_a_grouped_transposed_convolution_is_not_a_dense_one() -> None:
    def macs(group: int) -> float:
        found = tasks(f"""(float[1, 128, 16, 16] x) => (float[1, 128, 32, 32] y) {{
            {constant("w", 128, 128 // group, 2, 2)} r = Relu(x)
            y = ConvTranspose<group = {group}, strides = [2, 2], kernel_shape = [2, 2]>(r, w) }}""")
        return sum(t.hmx.get("conv", 0.0) + t.hmx.get("grouped", 0.0) for t in found)

    assert macs(4) == pytest.approx(macs(1) / 4)


def stem(channels: int) -> str:
    """A convolution of stride 2 on an image."""
    return f"""(float[1, {channels}, 224, 224] x) => (float[1, 32, 112, 112] y) {{ {constant("w", 32, channels, 3, 3)}
        y = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w) }}"""


@pytest.mark.parametrize("precision", ["float", "w8a8", "w8a16"])
def test_a_fixed_point_image_is_strided_as_it_is_packed(precision: str) -> None:
    image, deep = only(stem(3), tile.precision(precision)), only(stem(64), tile.precision(precision))
    assert "pack" in image.hvx
    assert ("stride" in image.hvx) == (precision == "float")
    assert "stride" in deep.hvx


@pytest.mark.parametrize(
    ("precision", "size", "megabytes", "transposed"),
    [
        ("w8a8", 224, 8, False),  # with 32 channels 1.6 MB, which stay
        ("w8a8", 224, 2, True),
        ("w8a8", 512, 8, True),
        ("w8a16", 224, 8, True),
    ],
)
def test_onnx_graphs_normalise_channel_last_what_stays_in_vtcm(
    precision: str, size: int, megabytes: int, transposed: bool
) -> None:
    body = f"""(float[1, 3, {size}, {size}] x) => (float[1, 32, {size}, {size}] y) {{ {constant("w", 32, 3, 3, 3)}
        m = Constant<value_float: float = 0.5>() c = Sub(x, m) d = Div(c, m)
        y = Conv<pads = [1, 1, 1, 1]>(d, w) }}"""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> agraph {body}')
    net = graph_of(model)
    onnx, dlc = (
        [t.op for t in schedule(net, tile.precision(precision), runtime, megabytes << 20)]
        for runtime in ("onnx", "qnn_dlc")
    )
    assert ("Transpose" in onnx[: onnx.index("Conv2d")]) == transposed
    assert "Transpose" not in dlc


def test_a_difference_of_two_tensors_is_priced_as_a_part_of_their_quotient() -> None:
    two = "(float[1, 64, 256] x, float[1, 64, 256] z) => (float[1, 64, 256] y)"
    quotient, difference = only(f"{two} {{ y = Div(x, z) }}"), only(f"{two} {{ y = Sub(x, z) }}")
    assert difference.hvx["divide"] == pytest.approx(DIFFERENCE * quotient.hvx["divide"])
    assert "divide" not in only(f"{two} {{ y = Add(x, z) }}").hvx
    shifted = only(
        "(float[1, 64, 256] x) => (float[1, 64, 256] y) { c = Constant<value_float: float = 2.0>() y = Sub(x, c) }"
    )
    assert "divide" not in shifted.hvx


def test_a_shallow_image_is_padded_to_half_a_tile_and_a_packed_one_to_a_whole() -> None:
    assert tile.padded_elements((1, 16, 16, 16)) == tile.padded_elements((1, 16, 16, 5)) == 16 * 16 * 16
    assert tile.padded_elements((1, 16, 16, 3)) == tile.padded_elements((1, 16, 16, 24)) == 16 * 16 * 32
    assert tile.padded_elements((16, 16, 16)) == 16 * 16 * 32  # no image

    def windows(channels: int) -> float:
        found = tasks(f"""(float[1, {channels}, 16, 16] x) => (float[1, {channels}, 16, 16] y) {{
            {constant("w", channels, 1, 3, 3)} r = Relu(x)
            y = Conv<group = {channels}, pads = [1, 1, 1, 1]>(r, w) }}""")
        return sum(t.hmx.get("depthwise", 0.0) for t in found)

    assert windows(16) == pytest.approx(windows(32) / 2)


def test_groups_of_whole_tiles_are_dense_convolutions_and_others_are_not() -> None:
    def work(channels: int, group: int) -> dict[str, float]:
        found = tasks(f"""(float[1, {channels}, 16, 16] x) => (float[1, {channels}, 16, 16] y) {{
            {constant("w", channels, channels // group, 3, 3)} r = Relu(x)
            y = Conv<group = {group}, pads = [1, 1, 1, 1]>(r, w) }}""")
        return next(t.hmx for t in found if t.hmx)

    whole = work(128, 4)
    assert whole == {"conv": pytest.approx(work(128, 1)["conv"] / 4)}
    assert work(128, 8) == {"grouped": pytest.approx(whole["conv"])}  # two of 16 channels share a tile
    assert work(192, 4)["grouped"] == pytest.approx(16 * 16 * 9 * 64 * 256 / 1e9)  # 48 channels end within a tile


def test_a_tensor_of_five_axes_is_moved_without_padding() -> None:
    body = """(float[1, 3, 85, 16, 16] x) => (float[1, 3, 16, 16, 85] y) {
        r = Relu(x) t = Transpose<perm = [0, 1, 3, 4, 2]>(r) y = Sigmoid(t) }"""
    assert sum(t.hvx.get("shuffle", 0.0) for t in tasks(body)) == pytest.approx(3 * 85 * 16 * 16 / 1e6)


@pytest.mark.parametrize(
    ("runtime", "precision", "more"), [("onnx", FLOAT, 0.1), ("qnn_dlc", FLOAT, 0.0), ("onnx", W8A8, 0.0)]
)
def test_rows_that_a_float_onnx_graph_slices_have_a_cost_of_their_own(
    runtime: str, precision: tile.Precision, more: float
) -> None:
    ends = " ".join(f"{n} = Constant<value_ints: ints = [{v}]>()" for n, v in (("b", 0), ("e", 33), ("a", 2)))
    body = f"(float[1, 100, 96] x) => (float[1, 100, 33] y) {{ {ends} r = Relu(x) y = Slice(r, b, e, a) }}"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> agraph {body}')
    found = schedule(graph_of(model), precision, runtime, VTCM)
    assert {k: sum(t.hvx.get(k, 0.0) for t in found) for k in ("cut", "piece")} == {
        "cut": pytest.approx(more),
        "piece": pytest.approx(0.1),
    }


@pytest.mark.parametrize(
    ("window", "pad", "precision", "one_by_one"),
    [(5, 2, W8A8, True), (5, 2, FLOAT, False), (3, 1, W8A8, False), (5, 0, W8A8, False)],
)
def test_averages_of_integers_over_large_windows_beyond_the_image_go_one_by_one(
    window: int, pad: int, precision: tile.Precision, one_by_one: bool
) -> None:
    side = 16 + 2 * pad - window + 1
    attributes = f"kernel_shape = [{window}, {window}], pads = [{pad}, {pad}, {pad}, {pad}], count_include_pad = 1"
    body = f"""(float[1, 32, 16, 16] x) => (float[1, 32, {side}, {side}] y) {{
        r = Relu(x) y = AveragePool<{attributes}>(r) }}"""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> agraph {body}')
    elements = sum(t.hvx.get("scalar", 0.0) for t in schedule(graph_of(model), precision, "qnn_dlc", VTCM))
    assert elements == pytest.approx(side * side * 32 * window**2 / 1e3 if one_by_one else 0.0)
