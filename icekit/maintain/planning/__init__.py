"""What is worth doing to a table, and what it would change; writes nothing."""
