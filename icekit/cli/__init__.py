"""The ``icekit`` command: a module a group of commands. Importing one imports nothing that it needs only when it runs."""
