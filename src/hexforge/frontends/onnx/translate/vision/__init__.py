# SPDX-License-Identifier: Apache-2.0
"""Translators of ops on pictures: resizing, sampling, regions, boxes."""
