"""What people look at: charts, tables, cards. Facts and findings in; nothing is computed here that measures do not give.

This package imports nothing by itself: the card in a terminal must not wait for pandas or
matplotlib.
"""
