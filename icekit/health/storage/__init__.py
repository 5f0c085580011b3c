"""What storage holds beside a table's files, and which of these are gone."""
