"""The command that writes a file which can stand in the place of a cluster; help, errors and documentation name it."""

#: Every kind that a decision may look at.
WANTED = "nodes,namespaces,pods,events,pvc,pv,storageclasses,csinodes,volumeattachments,csidrivers,csistoragecapacities"
COMMAND = f"kubectl get {WANTED} -A -o json"
