# SPDX-License-Identifier: Apache-2.0
"""How well models of other people's packages decide after hexforge chose how to quantize them."""
