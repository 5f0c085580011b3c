"""The ``icekit`` command: one module for each group of commands. A module imports what its commands
need only when they run.
"""
