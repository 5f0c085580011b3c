"""Choose what is worth doing to a table, and do it: candidates, plan, run, ledger, proposals."""
