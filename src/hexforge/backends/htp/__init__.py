# SPDX-License-Identifier: Apache-2.0
"""The htp backend: numbers and time of one prepared graph, behind the contract."""
