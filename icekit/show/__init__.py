"""Charts, tables and cards, from facts and findings; this package computes no new figures.

It imports nothing at the top, so that the card in a terminal does not wait for pandas or
matplotlib.
"""
