"""What runs have done and are doing: claims, the ledger, and the table's own commits."""
