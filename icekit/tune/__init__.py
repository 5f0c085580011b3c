"""How a table is written and read: what a setting or a statement costs, measured before it is advised."""
