"""The HTML page: text, figures and the table of points in one file."""
