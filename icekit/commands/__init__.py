"""The larger commands of ``python -m icekit``; importing one imports nothing that it needs only when it runs."""
