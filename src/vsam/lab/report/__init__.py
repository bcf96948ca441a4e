"""Reports on runs: an HTML page, and the same figures and tables for papers."""

from vsam.lab.report.write import ReportFiles, write_report

__all__ = ["ReportFiles", "write_report"]
