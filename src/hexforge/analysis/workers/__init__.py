# SPDX-License-Identifier: Apache-2.0
"""Workers: one function over many tasks in this process, on local processes, or on the machines of a Ray cluster."""
