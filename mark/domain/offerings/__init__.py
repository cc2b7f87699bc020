"""Offerings: instance types and Lambda; with quotas, least disks, and the times that AWS takes."""
