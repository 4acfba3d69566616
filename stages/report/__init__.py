"""report: one page about a run or a comparison that a team can pass around."""

from stages.report.stage import FORMATS, report

__all__ = ["FORMATS", "report"]
