# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's files: programs, tensors beside them, compile specs, event logs."""
