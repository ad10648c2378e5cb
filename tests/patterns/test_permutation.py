# SPDX-License-Identifier: Apache-2.0
"""Permutations: composed, undone, and brought to one form."""

from __future__ import annotations

from hexforge.patterns.permutation import canonical, compose, identity, inverse, moves_nothing


def test_permutations() -> None:
    p, q = (0, 2, 3, 1), (3, 1, 0, 2)
    assert compose(p, inverse(p)) == identity(4)
    assert compose(p, q) == (1, 2, 0, 3)
    assert moves_nothing((0, 2, 3, 1), (5, 7, 1, 1))
    assert not moves_nothing((0, 2, 3, 1), (5, 7, 2, 1))


def test_a_movement_has_one_form() -> None:
    assert canonical((2, 3, 4, 5), (0, 2, 3, 1)) == ((2, 3, 20), (0, 2, 1))
    assert canonical((1, 6, 1, 4), (2, 3, 0, 1)) == ((6, 4), (1, 0))
    assert canonical((1, 6, 1, 4), (2, 1, 0, 3)) == ((24,), (0,))
    assert canonical((1, 1), (1, 0)) == ((), ())
