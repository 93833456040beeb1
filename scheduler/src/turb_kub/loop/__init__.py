"""The running scheduler: what the watches say goes into the cluster and the queue; what is decided goes out.

Every function here runs on one event loop, so the cluster and the queue need no locks; between two `await`s nothing
else changes them.
"""
