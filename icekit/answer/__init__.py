"""Grids and HTML: the parts that results are displayed with."""
