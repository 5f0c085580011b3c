"""The ``icekit`` command: one module for each group of commands. Importing one imports nothing that it needs only when it runs."""
