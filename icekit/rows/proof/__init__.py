"""Compare the rows before and after a commit, and say how many were compared."""
