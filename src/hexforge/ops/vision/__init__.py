# SPDX-License-Identifier: Apache-2.0
"""Ops on pictures: resizing, sampling, regions, boxes."""
