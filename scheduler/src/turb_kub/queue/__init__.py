"""Which pod is decided next, and when one that could not be placed is tried again.

Without I/O and without a clock of its own: every call is told the time.
"""
