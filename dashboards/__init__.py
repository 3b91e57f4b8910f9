"""Grafana dashboards: pages in Python, written as JSON by `make dashboards`."""
