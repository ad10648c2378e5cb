# SPDX-License-Identifier: Apache-2.0
"""Running a .pte without torch: delegates, buffers, several methods, control flow, and errors in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hexforge.addons.executorch import blob
from hexforge.addons.executorch.running.pte_loading import load
from hexforge.errors import CallError, FormatError, UnsupportedError
from tests.addons.executorch.pte_files import (
    Ints,
    Plan,
    Tensor,
    context_blob,
    counting,
    delegated,
    doubling,
    pte,
    viewed,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_delegate_runs(tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    path.write_bytes(pte(delegated()))
    module = load(path)
    (y,) = module.run("forward", [X])
    assert module.names == ("forward",)
    np.testing.assert_array_equal(y, 2 * X)


def test_results_stay_when_the_method_runs_again() -> None:
    method = load(pte(delegated())).method()
    (first,) = method.run([X])
    kept = np.array(first)
    method.run([X + 1])
    np.testing.assert_array_equal(first, kept)


def test_methods_share_a_context() -> None:
    data = context_blob(doubling("one"), doubling("two"))
    module = load(pte(delegated(data, name="one"), delegated(data, name="two")))
    for name in module.names:
        np.testing.assert_array_equal(module.run(name, [X])[0], 2 * X)
    assert len(module._contexts) == 1


def test_a_buffer_stays_from_run_to_run() -> None:
    like = Tensor(np.float32, (4,))
    plan = Plan([like, like], [0], [1], [("delegate", 0, [0, 1])], delegates=[("QnnBackend", context_blob(counting()))])
    module = load(pte(plan))
    method, other = module.method(), module.method()
    ones = np.ones(4, np.float32)
    assert [float(method.run([ones])[0][0]) for _ in range(3)] == [1.0, 2.0, 3.0]  # type: ignore[index]
    assert float(other.run([ones])[0][0]) == 1.0  # type: ignore[index]
    method.reset()
    assert float(method.run([ones])[0][0]) == 1.0  # type: ignore[index]


def test_delegates_follow_each_other_and_values_move() -> None:
    like = Tensor(np.float32, (2, 3))
    data = context_blob(doubling("forward"))
    plan = Plan(
        [like, like, like, like, True, False],
        [0],
        [3],
        [("delegate", 0, [0, 1]), ("jump", 4, 3), ("delegate", 1, [1, 2]), ("move", 2, 3), ("free", 1, None),
         ("jump", 5, 7), ("delegate", 0, [0, 3])],
        delegates=[("QnnBackend", data), ("QnnBackend", data)],
    )  # fmt: skip
    np.testing.assert_array_equal(load(pte(plan)).run("forward", [X])[0], 4 * X)


def test_numbers_are_computed_while_it_runs() -> None:
    plan = Plan(
        [Tensor(np.float32, (8, 3), dynamism=1), 0, 0, 2, 0],
        [0],
        [4],
        [("kernel", 0, [0, 1, 2]), ("kernel", 1, [2, 3, 4])],
        operators=["aten::sym_size.int", "executorch_prim::mul.Scalar"],
    )
    module = load(pte(plan))
    assert module.run("forward", [np.zeros((5, 3), np.float32)]) == [10]
    with pytest.raises(CallError, match=r"sizes \[9, 3\], it must be float32\[8, 3\] or less"):
        module.run("forward", [np.zeros((9, 3), np.float32)])


def test_a_view_and_a_copy() -> None:
    plan = Plan(
        [Tensor(np.float32, (2, 3)), Ints((4, 5)), Tensor(np.float32, (3, 2)),
         Tensor(np.float64, (3, 2), memory=(1, 0)), 3, 2, False, None],
        [0],
        [3],
        [("kernel", 0, [0, 1, 2]), ("kernel", 1, [2, 6, 7, 3, 3])],
        operators=["executorch_prim::et_view.default", "dim_order_ops::_to_dim_order_copy.out"],
    )  # fmt: skip
    (y,) = load(pte(plan)).run("forward", [X])
    assert isinstance(y, np.ndarray)
    assert y.dtype == np.float64
    np.testing.assert_array_equal(y, X.reshape(3, 2))


def test_views_that_no_instruction_makes() -> None:
    """A view of known sizes is a value at its source's place: of an input, of an output of a delegate, of an output."""
    method = load(pte(viewed())).method()
    for x in (X, X + 1):
        turned_x, twice, doubled = method.run([x.reshape(6)])
        np.testing.assert_array_equal(doubled, 2 * x)
        np.testing.assert_array_equal(turned_x, 2 * x.reshape(3, 2))
        np.testing.assert_array_equal(twice, 4 * x)


def counted(to: int) -> Plan:
    """A loop that counts to a number."""
    return Plan(
        [Tensor(np.float32, (2, 3)), 0, 1, to, False],
        [0],
        [1],
        [("kernel", 0, [1, 2, 1]), ("kernel", 1, [1, 3, 4]), ("jump", 4, 0)],
        operators=["executorch_prim::add.Scalar", "executorch_prim::ge.Scalar"],
    )


def test_a_loop_ends() -> None:
    assert load(pte(counted(1000))).run("forward", [X]) == [1000]


# -- what is wrong is said --------------------------------------------------------------------------------------------


def test_inputs_that_do_not_fit() -> None:
    module = load(pte(delegated()), threads=1)
    with pytest.raises(CallError, match="takes 1 inputs, 2 were given"):
        module.run("forward", [X, X])
    with pytest.raises(CallError, match=r"input 0 is int64, it must be float32\[2, 3\]"):
        module.run("forward", [X.astype(np.int64)])
    with pytest.raises(CallError, match=r"sizes \[3, 2\]"):
        module.run("forward", [X.T])
    with pytest.raises(CallError, match="has no method 'other'"):
        module.run("other", [X])


def test_a_delegate_of_another_backend() -> None:
    with pytest.raises(UnsupportedError, match="is for 'XnnpackBackend', which hexforge does not run"):
        load(pte(delegated(b"blob", "XnnpackBackend")))


def test_a_context_of_the_vendor() -> None:
    vendor = blob.wrap_context(b"\x00\x00\x00\x02" + bytes(range(200)))
    with pytest.raises(FormatError, match="holds a context that hexforge did not make"):
        load(pte(delegated(vendor)))
    with pytest.raises(FormatError, match="did not make"):
        load(pte(delegated(b"no header at all")))


def test_a_context_that_is_damaged() -> None:
    data = bytearray(context_blob(doubling("forward")))
    data[blob.ALIGNMENT + 4096 + 5] ^= 1  # in the first section, behind the header
    with pytest.raises(FormatError):
        load(pte(delegated(bytes(data))))


@pytest.mark.parametrize("memory", [None, (1, 0), (2, 0)])
@pytest.mark.parametrize("sizes", [(208, 3), (2, 4), (1,), (3, 2, 2)])
def test_an_output_of_another_size_than_its_graph_gives_is_a_damaged_file(
    sizes: tuple[int, ...], memory: tuple[int, int] | None
) -> None:
    plan = delegated()
    wrong = replace(plan, values=[plan.values[0], Tensor(np.float32, sizes, memory=memory)], memory=(0, 4096, 4096))
    with pytest.raises(FormatError, match=r"value 1 is to be \[.*\], and \[2, 3\] is written to it"):
        load(pte(wrong)).method("forward").run([np.ones((2, 3), np.float32)])


def test_a_graph_that_does_not_fit_its_call() -> None:
    like = Tensor(np.float32, (2, 3))
    plan = Plan([like, like], [0], [1], [("delegate", 0, [0, 1, 1])],
                delegates=[("QnnBackend", context_blob(doubling("forward")))])  # fmt: skip
    with pytest.raises(FormatError, match="is called with 3 tensors; its graph has 1 inputs and 1 outputs"):
        load(pte(plan)).method()


def test_an_operator_that_nothing_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    plan = Plan([Tensor(np.float32, (2, 3))], [0], [0], [("kernel", 0, [0, 0])], operators=["aten::sin.out"])
    with pytest.raises(UnsupportedError, match=r"needs the operators aten::sin\.out, which no delegate took"):
        load(pte(plan), threads=1).method()


def test_a_loop_without_end() -> None:
    method = load(pte(counted(10**9)), max_instructions=5000).method()
    with pytest.raises(CallError, match="more than 5000 instructions in loops"):
        method.run([X])
    jump = Plan([Tensor(np.float32, (2, 3)), False], [0], [0], [("jump", 1, 0)])
    with pytest.raises(CallError, match="more than 10000000 instructions"):
        load(pte(jump)).run("forward", [X])
