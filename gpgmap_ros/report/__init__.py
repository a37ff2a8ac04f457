"""The report of a run: one page of HTML that opens offline and holds everything it shows."""

from gpgmap_ros.report.content import Content, closure_views, layers_of
from gpgmap_ros.report.page import write_report

__all__ = ["Content", "closure_views", "layers_of", "write_report"]
