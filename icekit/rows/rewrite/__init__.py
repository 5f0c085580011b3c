"""Write the groups of a rewrite, and check each before it is committed."""
