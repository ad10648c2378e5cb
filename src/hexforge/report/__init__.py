# SPDX-License-Identifier: Apache-2.0
"""Report: an estimate as one self-contained HTML page."""

from hexforge.report.page import page, sections_page
from hexforge.report.pictures import Picture, Pictures
from hexforge.report.section import Bars, Column, Figure, Figures, Plot, Section, Series, Step, Steps, Table

__all__ = [
    "Bars",
    "Column",
    "Figure",
    "Figures",
    "Picture",
    "Pictures",
    "Plot",
    "Section",
    "Series",
    "Step",
    "Steps",
    "Table",
    "page",
    "sections_page",
]
