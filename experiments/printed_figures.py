"""A study's figures as one table: name, what is printed elsewhere, ours."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from rostam_py.reproduction import Figure


def print_figures(title: str, figures: Iterable[Figure], printed: str = "printed", width: int = 150) -> None:
    """Print figures as a table. Args: printed: heads the column of what others say. width: of the table."""
    table = Table(title=title)
    for column in ("figure", printed, "rostam"):
        table.add_column(column)
    for one in figures:
        table.add_row(one.name, one.published, one.ours)
    Console(width=width).print(table)
