# SPDX-License-Identifier: Apache-2.0
"""How good quantized models are, on real models and data, and beside the vendor's emulator."""
