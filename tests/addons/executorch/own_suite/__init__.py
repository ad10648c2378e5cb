# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's own tests, from the installed wheel, on hexforge: `python -m tests.addons.executorch.own_suite`."""
