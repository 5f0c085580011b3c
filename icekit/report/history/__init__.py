"""The health of tables over time: stored in an Iceberg table or a SQLite file, read back in bounded
amounts, and compared.
"""
