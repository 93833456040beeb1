"""Where a pod goes, and why: pure functions of the in-memory cluster, the pod and a policy.

`decide` is the only place where a node is chosen; the loop and every explanation use it. Nothing here does I/O, keeps
state that changes an answer, or reads a clock.
"""
