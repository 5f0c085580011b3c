"""Prove what is true of a table: by its rows and files, not by its promises."""
