"""Report on tables unattended: pages, an index, their history, and passes over many tables by a
policy.
"""
