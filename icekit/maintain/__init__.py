"""Plan what is worth doing to a table, do it, and record it."""
