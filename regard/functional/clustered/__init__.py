"""Softmax inside clusters: hashes and centroids."""
