"""The errors by which the kernel refuses a part.

Executors get the source of this module from the driver.
"""


class KernelRefused(Exception):
    """Files that the kernel cannot rewrite exactly; says why."""


class RuledOut(Exception):
    """A row is deleted by a delete that Iceberg's scan rules out for the data file of this path."""
