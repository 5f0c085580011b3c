"""Compact tables in runs that can be killed, watched and resumed."""
