# SPDX-License-Identifier: Apache-2.0
"""Running .pte files: by hexforge's own interpreter, and inside ExecuTorch's runtime."""
