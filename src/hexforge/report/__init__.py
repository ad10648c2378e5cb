"""Report: an estimate as one self-contained HTML page."""

from hexforge.report.page import page
from hexforge.report.section import Bars, Column, Plot, Section, Series, Table

__all__ = ["Bars", "Column", "Plot", "Section", "Series", "Table", "page"]
