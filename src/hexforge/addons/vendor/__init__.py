# SPDX-License-Identifier: Apache-2.0
"""Vendor: the bridge to Qualcomm's own package, which makes the files that devices take.

The package (`onnxruntime-qnn`, extra `hexforge[vendor]`) is driven only through its documented API and in a process of
its own. Nothing of it is opened, nothing of it is bundled.
"""
