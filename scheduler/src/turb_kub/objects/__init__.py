"""What the API server says, cut down to what a decision needs.

A pod is some 9 KB of JSON on the wire and some hundred bytes here. Modules of this package know the Kubernetes
API's shapes and rules of arithmetic (quantities, effective requests, selectors, tolerations); they hold no state
and do no I/O.
"""
