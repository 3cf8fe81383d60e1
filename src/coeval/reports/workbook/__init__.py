"""Reports as Excel workbooks."""
