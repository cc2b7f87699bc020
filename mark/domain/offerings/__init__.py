"""What can be rented, and how much of it: instance types, Lambda, quotas, least disks, and how long AWS takes."""
