"""The health of tables over time: stored in a SQLite file, read back in bounded amounts, and
compared.
"""
