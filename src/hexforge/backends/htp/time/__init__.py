# SPDX-License-Identifier: Apache-2.0
"""The time that the HTP takes: tiles, VTCM, units and clocks, as a timeline."""
