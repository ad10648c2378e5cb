# SPDX-License-Identifier: Apache-2.0
"""The parts of pages that are about how good a quantized model is."""
