# SPDX-License-Identifier: Apache-2.0
"""PyTorch models through ExecuTorch: speed beside Qualcomm's library, and accuracy against torch."""
