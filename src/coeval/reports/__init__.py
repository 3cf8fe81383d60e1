"""Pages, workbooks and figures of what is on disk, and the server that shows them."""
