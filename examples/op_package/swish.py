# SPDX-License-Identifier: Apache-2.0
"""An op package in Python: Swish, x / (1 + exp(-beta x)), and a sum over the last axis that keeps the others.

hexforge run model.onnx --op-package Swish:examples/op_package/swish.py:package
"""

import numpy as np

from hexforge import OpPackage, Param

package = OpPackage("example.activations", domain="com.example")


@package.op("Swish", params=(Param("beta", "float32", default=1.0),), work="lookup", lanes=1, lookups=1)
def swish(x, beta):
    """x times the logistic function of beta x."""
    return x / (1 + np.exp(-np.clip(beta * x, -80, 80)))


@package.op("LastSum", shape=lambda x: x[:-1], work="reduce")
def last_sum(x):
    """The sum of the elements along the last axis."""
    return x.sum(-1)
