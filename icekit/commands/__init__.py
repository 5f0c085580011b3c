"""The larger commands of ``icekit``; importing one imports nothing that it needs only when it runs."""
