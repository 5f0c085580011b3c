"""What a table is made of: two collectors, with Spark and without, and one result."""
