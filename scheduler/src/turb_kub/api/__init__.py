"""The wire: credentials, requests, watches, and the three writes of a scheduler (binding, condition, event).

The official `kubernetes` package reads kubeconfig files and identities; JSON goes straight from the socket into the
structs of `objects`, because the package's typed models cost ten times as much and its typed binding call raises
after a successful bind.
"""
