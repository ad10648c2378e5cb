# SPDX-License-Identifier: Apache-2.0
"""For agents: hexforge's commands as tools of the Model Context Protocol."""
