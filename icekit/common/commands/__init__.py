"""Every setting of a command, its notebook and its section of a policy, with the one default that
they share.
"""
