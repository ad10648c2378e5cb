# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's files: programs, their tensors, compile specs, event logs."""
