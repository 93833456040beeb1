"""The cluster as the API server last told it, plus what this scheduler has decided and not yet seen confirmed.

Updated in place by each event; nothing is listed again or copied for a decision. Amounts that every decision compares
are NumPy arrays indexed by a node's slot.
"""
